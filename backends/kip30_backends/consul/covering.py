"""Cutting a sorted list of keys into spans: prefixes that together cover it, none in another."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kip30.driver.scanning import Span
from kip30_backends.consul import transactions
from kip30_backends.consul.records import UNREADABLE

TREE = "tree"
"""All keys that begin with a text."""
KEY = "key"
"""The key of that name alone."""
LOST = "lost"
"""A key that cannot be asked for: its name is not UTF-8, and so is no prefix that only it has."""

_BYTES_BESIDES = 64


class Part(NamedTuple):
    """What one operation of a transaction reads."""

    kind: str
    name: str
    rows: int

    @property
    def size(self) -> int:
        """How many bytes of a request this takes."""
        return _BYTES_BESIDES + len(json.dumps(self.name))


class _Run(NamedTuple):
    """The names from *low* up to *high*, all of which begin with *prefix*."""

    low: int
    high: int
    prefix: str


def cover(names: list[str], prefix: str, most: int) -> Iterator[Part]:
    """Yield parts of at most *most* keys each, with every one of *names* in exactly one of them.

    Args:
        names: Sorted; all begin with *prefix*.
        prefix: May be empty, which is no prefix that can be asked for.
        most: At least 1.
    """
    left = [_Run(0, len(names), prefix)]
    while left:
        run = left.pop()
        rows = run.high - run.low
        if run.prefix.endswith(UNREADABLE):
            yield from (Part(LOST, name, 1) for name in names[run.low : run.high])
        elif rows == 1 and UNREADABLE not in names[run.low]:
            yield Part(KEY, names[run.low], 1)
        elif run.prefix and rows <= most:
            yield Part(TREE, run.prefix, rows)
        else:
            left += reversed(list(_split(names, run)))


def _split(names: list[str], run: _Run) -> Iterator[_Run]:
    """Cut *run* by the next character; the key that is its prefix goes by itself."""
    low, size = run.low, len(run.prefix) + 1
    while low < run.high:
        start = names[low][:size]
        high = low + 1
        if start != run.prefix:
            high = bisect_right(names, start, low, run.high, key=lambda name: name[:size])
        yield _Run(low, high, start)
        low = high


def spans(parts: Iterable[Part], most: int) -> Iterator[Span]:
    """Put neighbours together: up to *most* keys that one transaction can read."""
    together: list[Part] = []
    for part in parts:
        if together and not _fit([*together, part], most):
            yield span_of(together)
            together = []
        together.append(part)
    if together:
        yield span_of(together)


def _fit(parts: list[Part], most: int) -> bool:
    return (
        len(parts) <= transactions.MAX_OPS
        and sum(part.rows for part in parts) <= most
        and sum(part.size for part in parts) <= transactions.MAX_BYTES
    )


def span_of(parts: list[Part]) -> Span:
    """Return the span that is read as *parts*, in one transaction."""
    return Span(json.dumps(parts).encode(), sum(part.rows for part in parts))


def parts_of(token: bytes) -> list[Part]:
    """Return the parts of a span."""
    return [Part(*part) for part in json.loads(token)]


def reads(parts: Iterable[Part]) -> list[transactions.Operation]:
    """Return the operations that read *parts*, but for those that cannot be asked for."""
    ask = {TREE: transactions.tree, KEY: transactions.get_or_empty}
    return [ask[part.kind](part.name) for part in parts if part.kind in ask]
