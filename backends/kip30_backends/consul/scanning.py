"""Reading the store in bulk: all names in one answer, then prefix by prefix.

Spans are prefixes that together cover the sorted names, none inside another.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.scanning import (
    Change,
    Consistency,
    Page,
    PageSize,
    Position,
    ScanDriver,
    Span,
    View,
    check_rows,
)
from kip30.errors import PositionLostError, UnsupportedError
from kip30_backends.consul import transactions
from kip30_backends.consul.client.operation_requests import OK_OR_ABSENT, TypedRequest
from kip30_backends.consul.resources import Resources
from kip30_backends.consul.row_decoding import ScanView, reading_of, unreadable
from kip30_backends.consul.settings import ConsulSettings
from kip30_backends.consul.transactions import (
    UNREADABLE,
    KVColumns,
    at_key,
    names_found,
    target,
)

TREE = "tree"
"""All keys that begin with a text."""
KEY = "key"
"""The key of that name alone."""
LOST = "lost"
"""A key that cannot be asked for: its name is not UTF-8, and so is no prefix that only it has."""

_BYTES_BESIDES = 64


class OperationKeys(NamedTuple):
    """The keys that one operation of a transaction reads."""

    kind: str
    name: str
    rows: int

    @property
    def size(self) -> int:
        """Number of bytes of a request that this takes."""
        return _BYTES_BESIDES + len(json.dumps(self.name))


class _NameRange(NamedTuple):
    """The names from *low* up to *high*, all of which begin with *prefix*."""

    low: int
    high: int
    prefix: str


def cover(names: list[str], prefix: str, most: int) -> Iterator[OperationKeys]:
    """Yield parts of at most *most* keys each, with every one of *names* in exactly one of them.

    Args:
        names: Sorted; all begin with *prefix*.
        prefix: May be empty, which cannot be requested as a prefix.
        most: At least 1.
    """
    left = [_NameRange(0, len(names), prefix)]
    while left:
        run = left.pop()
        rows = run.high - run.low
        if run.prefix.endswith(UNREADABLE):
            yield from (OperationKeys(LOST, name, 1) for name in names[run.low : run.high])
        elif rows == 1 and UNREADABLE not in names[run.low]:
            yield OperationKeys(KEY, names[run.low], 1)
        elif run.prefix and rows <= most:
            yield OperationKeys(TREE, run.prefix, rows)
        else:
            left += reversed(list(_split(names, run)))


def _split(names: list[str], run: _NameRange) -> Iterator[_NameRange]:
    """Cut *run* by the next character; the key that equals its prefix is separate."""
    low, size = run.low, len(run.prefix) + 1
    while low < run.high:
        start = names[low][:size]
        high = low + 1
        if start != run.prefix:
            high = bisect_right(names, start, low, run.high, key=lambda name: name[:size])
        yield _NameRange(low, high, start)
        low = high


def spans(parts: Iterable[OperationKeys], most: int) -> Iterator[Span]:
    """Join neighbours: up to *most* keys that one transaction can read."""
    together: list[OperationKeys] = []
    for part in parts:
        if together and not _fit([*together, part], most):
            yield span_of(together)
            together = []
        together.append(part)
    if together:
        yield span_of(together)


def _fit(parts: list[OperationKeys], most: int) -> bool:
    return (
        len(parts) <= transactions.MAX_OPS
        and sum(part.rows for part in parts) <= most
        and sum(part.size for part in parts) <= transactions.MAX_BYTES
    )


def span_of(parts: list[OperationKeys]) -> Span:
    """Return the span that is read as *parts*, in one transaction."""
    return Span(json.dumps(parts).encode(), sum(part.rows for part in parts))


def parts_of(token: bytes) -> list[OperationKeys]:
    """Return the parts of a span."""
    return [OperationKeys(*part) for part in json.loads(token)]


def reads(parts: Iterable[OperationKeys]) -> list[transactions.Operation]:
    """Return the operations that read *parts*, except those that cannot be requested."""
    ask = {TREE: transactions.tree, KEY: transactions.get_or_empty}
    return [ask[part.kind](part.name) for part in parts if part.kind in ask]


T = TypeVar("T")

_MOST_ROWS = 1_000
"""Most keys of a span: a longer answer costs a server more for each of its keys."""

_SPAN_BYTES = 32 * 1024 * 1024
"""The most bytes of a span, if the sample is right: one answer has all of it."""

_SAMPLED = 32

_PROBE = "connecting"
"""Ends the name of a key that is read for the index alone; it need not be there."""

_PLAIN = r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*"
_SAFE = re.compile(rf"(?:{_PLAIN}(?:/{_PLAIN})*/?)?")
"""The text that every version of Consul takes in a URL as it is."""


class ConsulScanner(ScanDriver):
    """One cluster, over connections that hold no session."""

    consistency = Consistency.PER_SPAN

    def __init__(self, context: Context, settings: ConsulSettings, view: View) -> None:
        """Connect.

        Raises:
            InvalidNameError: The view is of something that cannot be a namespace, or is not text.
            ConfigError: A file of the settings cannot be read.
            AuthenticationError: The cluster wants another token or certificate.
            UnavailableError: No server answered in the connect timeout.
        """
        self._namespace = context.namespace
        self._reading = reading_of(context.namespace, view)
        self._probe = f"{_safe(self._reading.place)}{_PROBE}"
        self._store = _identity(settings)
        self._resources = Resources(context, settings, session=False, probe=self._probe)

    @override
    def position(self) -> Position:
        return Position(self._store, str(self._index()))

    @override
    def turn_to(self, view: View, at: Position) -> Position:
        self._reading = reading_of(self._namespace, view)
        return at

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        check_rows(rows)
        self._check_identity(at)
        names = {prefix: self._names(prefix) for prefix in self._reading.prefixes}
        foreign = self._foreign()
        self._check_reached(at)
        if trees := self._reading.trees:
            yield span_of([OperationKeys(TREE, tree, 1) for tree in trees])
        most = self._most([*chain.from_iterable(names.values())], rows)
        parts = (cover(found, prefix, most) for prefix, found in names.items())
        yield from spans(chain(chain.from_iterable(parts), foreign), most)

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        self._check_identity(at)
        parts = parts_of(span.token)
        found = self._records(parts)
        self._check_reached(at)  # after the reading, so that this was not of an older store
        lost = [unreadable(part.name) for part in parts if part.kind == LOST]
        for page in chain(_pages(found, self._reading), [Page.of((), lost)] if lost else []):
            self._resources.calls.gate.check()
            yield page

    @override
    def changed_since(self, page: Page, at: Position) -> Sequence[bool]:
        newest = int(at.at)
        return [modified is None or modified > newest for modified in page.modified]

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        raise UnsupportedError("Consul keeps no log of changes: compare two scans")

    @override
    def close(self) -> None:
        self._resources.close()

    def _ask(self, ask: TypedRequest[T]) -> T:
        self._resources.calls.gate.check()
        return self._resources.calls.requests(self._resources.calls.seconds).ask(ask)

    def _index(self) -> int:
        """Return the index of the newest write, of any key: it never goes back within one store.

        The index of a list of keys does, when Consul forgets what was deleted from it.
        """
        return self._ask(at_key(self._probe)).at

    def _names(self, prefix: str) -> list[str]:
        """Return all keys that begin with *prefix*, in their order."""
        asked = target(_safe(prefix), "&keys")
        names = self._ask(TypedRequest("GET", asked, names_found, answers=OK_OR_ABSENT))
        return sorted(name for name in names if name.startswith(prefix))

    def _foreign(self) -> list[OperationKeys]:
        """Return the keys beside the values of a whole namespace that are not claims either."""
        reading = self._reading
        if not reading.claims:
            return []
        known = (*reading.prefixes, *reading.claims)
        names = [name for name in self._names(reading.place) if not name.startswith(known)]
        return [OperationKeys(LOST if UNREADABLE in name else KEY, name, 1) for name in names]

    def _most(self, names: Sequence[str], rows: int) -> int:
        """Return how many keys a span may have, if none is larger than the largest of a sample."""
        most = min(rows, _MOST_ROWS)
        if len(names) <= _SAMPLED:
            return most
        parts = (OperationKeys(KEY, name, 1) for name in names[:: len(names) // _SAMPLED + 1])
        some = next(spans((part for part in parts if UNREADABLE not in part.name), _SAMPLED), None)
        found = self._records(parts_of(some.token)) if some else KVColumns.of([])
        largest = max(map(len, found.sealed), default=0)
        return max(1, min(most, _SPAN_BYTES // max(largest, 1)))

    def _records(self, parts: Sequence[OperationKeys]) -> KVColumns:
        operations = reads(parts)
        return self._ask(transactions.read_all(operations)) if operations else KVColumns.of([])

    def _check_identity(self, at: Position) -> None:
        self._resources.calls.gate.check()
        if at.store != self._store:
            raise PositionLostError(f"the position is of {at.store!r}, and this is {self._store!r}")

    def _check_reached(self, at: Position) -> None:
        """Raise unless the store has reached *at*; it has, unless it lost its data."""
        index = self._index()
        if index < int(at.at):
            raise PositionLostError(
                f"the position is of index {at.at}, and this cluster is at {index}:"
                " it is another one, or was restored"
            )


def _identity(settings: ConsulSettings) -> str:
    """Return a name of the cluster of *settings*; Consul has none."""
    return ",".join((settings.datacenter or "", *sorted(map(str, settings.address))))


def _safe(prefix: str) -> str:
    """Return the beginning of *prefix* that a URL can have: proxies and servers alter the rest."""
    found = _SAFE.match(prefix)
    return found[0] if found else ""


def _pages(records: KVColumns, reading: ScanView) -> Iterator[Page]:
    size, done = PageSize(), 0
    while done < len(records.keys):
        page = reading.page(records.part(done, done + size.rows))
        done += size.rows
        size.adapt(page)
        yield page
