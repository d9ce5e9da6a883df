"""Reading the keys of a cluster in bulk: all names in one answer, then prefix by prefix."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

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
from kip30_backends.consul.covering import KEY, LOST, Part, cover, parts_of, reads, spans
from kip30_backends.consul.engine import Engine
from kip30_backends.consul.records import UNREADABLE, Records, at_key, names_found, target
from kip30_backends.consul.settings import ConsulSettings
from kip30_backends.consul.talk import OK_OR_ABSENT, Ask
from kip30_backends.consul.views import Reading, reading_of, unreadable

T = TypeVar("T")

_MOST_ROWS = 1_000
"""How many keys a span has at most: a longer answer costs a server more for each of its keys."""

_SPAN_BYTES = 32 * 1024 * 1024
"""How much a span holds at most, if the sample is right: one answer has all of it."""

_SAMPLED = 32

_PROBE = "connecting"
"""Ends the name of a key that is read for the index alone; it need not be there."""

_PLAIN = r"[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]+)*"
_SAFE = re.compile(rf"(?:{_PLAIN}(?:/{_PLAIN})*/?)?")
"""What every version of Consul takes in a URL as it is."""


class ConsulScanner(ScanDriver):
    """One cluster, over connections that hold no session."""

    consistency = Consistency.PER_SPAN

    def __init__(self, context: Context, settings: ConsulSettings, view: View) -> None:
        """Connect.

        Raises:
            InvalidNameError: The view is of what cannot be a namespace, or of no text.
            ConfigError: A file of the settings cannot be read.
            AuthenticationError: The cluster wants another token or certificate.
            UnavailableError: No server answered in the connect timeout.
        """
        self._reading = reading_of(context.namespace, view)
        self._probe = f"{_safe(self._reading.place)}{_PROBE}"
        self._store = _identity(settings)
        self._engine = Engine(context, settings, session=False, probe=self._probe)

    @override
    def position(self) -> Position:
        return Position(self._store, str(self._index()))

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        check_rows(rows)
        self._check_identity(at)
        names = {prefix: self._names(prefix) for prefix in self._reading.prefixes}
        foreign = self._foreign()
        self._check_reached(at)
        if self._reading.whole is not None:
            yield self._reading.whole
        most = self._most([*chain.from_iterable(names.values())], rows)
        parts = (cover(found, prefix, most) for prefix, found in names.items())
        yield from spans(chain(chain.from_iterable(parts), foreign), most)

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        self._check_identity(at)
        parts = parts_of(span.token)
        found = self._records(parts)
        self._check_reached(at)  # after the reading, so that it was not of an older store
        lost = [unreadable(part.name) for part in parts if part.kind == LOST]
        for page in chain(_pages(found, self._reading), [Page.of((), lost)] if lost else []):
            self._engine.calls.check()
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
        self._engine.close()

    def _ask(self, ask: Ask[T]) -> T:
        self._engine.calls.check()
        return self._engine.calls.talk(self._engine.calls.seconds).ask(ask)

    def _index(self) -> int:
        """Return the index of the newest write, of any key: it never goes back in one store.

        That of a list of keys does, when Consul forgets what was deleted from it.
        """
        return self._ask(at_key(self._probe)).at

    def _names(self, prefix: str) -> list[str]:
        """Return all keys that begin with *prefix*, in their order."""
        asked = target(_safe(prefix), "&keys")
        names = self._ask(Ask("GET", asked, names_found, answers=OK_OR_ABSENT))
        return sorted(name for name in names if name.startswith(prefix))

    def _foreign(self) -> list[Part]:
        """Return the keys beside the values of a whole namespace that are no claims either."""
        reading = self._reading
        if not reading.claims:
            return []
        known = (*reading.prefixes, *reading.claims)
        names = [name for name in self._names(reading.place) if not name.startswith(known)]
        return [Part(LOST if UNREADABLE in name else KEY, name, 1) for name in names]

    def _most(self, names: Sequence[str], rows: int) -> int:
        """Return how many keys a span may have, if none is larger than the largest of a sample."""
        most = min(rows, _MOST_ROWS)
        if len(names) <= _SAMPLED:
            return most
        parts = (Part(KEY, name, 1) for name in names[:: len(names) // _SAMPLED + 1])
        some = next(spans((part for part in parts if UNREADABLE not in part.name), _SAMPLED), None)
        found = self._records(parts_of(some.token)) if some else Records.of([])
        largest = max(map(len, found.sealed), default=0)
        return max(1, min(most, _SPAN_BYTES // max(largest, 1)))

    def _records(self, parts: Sequence[Part]) -> Records:
        operations = reads(parts)
        return self._ask(transactions.read_all(operations)) if operations else Records.of([])

    def _check_identity(self, at: Position) -> None:
        self._engine.calls.check()
        if at.store != self._store:
            raise PositionLostError(f"the position is of {at.store!r}, and this is {self._store!r}")

    def _check_reached(self, at: Position) -> None:
        """Raise unless the store has come as far as *at*, as it has unless it lost its data."""
        index = self._index()
        if index < int(at.at):
            raise PositionLostError(
                f"the position is of index {at.at}, and this cluster is at {index}:"
                " it is another one, or was restored"
            )


def _identity(settings: ConsulSettings) -> str:
    """Return which cluster *settings* mean; Consul has no name for one."""
    return ",".join((settings.datacenter or "", *sorted(map(str, settings.address))))


def _safe(prefix: str) -> str:
    """Return the beginning of *prefix* that a URL can have: proxies and servers alter the rest."""
    found = _SAFE.match(prefix)
    return found[0] if found else ""


def _pages(records: Records, reading: Reading) -> Iterator[Page]:
    size, done = PageSize(), 0
    while done < len(records.keys):
        page = reading.page(records.part(done, done + size.rows))
        done += size.rows
        size.adapt(page)
        yield page
