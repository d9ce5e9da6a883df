"""Reading targets whole, and rows that may be seen again after they were missed.

A conditional write judges what has expired by the time at which it began. So a renewal that a node
held up can bring back a row which a read has missed already. By then its holder has given it up:
the lease ends before the row can be missed, and a lease that has ended is not renewed again.

A row that is back has the nonce and the version that were missed. A nonce alone does not identify
it: a client that does not know what became of a claim claims again with the same nonce, and gets a
greater version. Nor does a version: in a cluster that lost everything they begin again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from kip30.driver.clock import Clock
from kip30.driver.kit.following import attempt, then
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.cassandra.batched_reads import SharedReads, entries_of, entry_of, snapshot
from kip30_backends.cassandra.client.library import Statement
from kip30_backends.cassandra.election import service_of
from kip30_backends.cassandra.folding import Folds, Place
from kip30_backends.cassandra.order import Overlaps
from kip30_backends.cassandra.request import Answer, Ask, Calls

_READS = {
    Kind.VALUE: "read_records",
    Kind.NAMESPACE: "read_names",
    Kind.GROUP: "read_members",
    Kind.MEMBER: "read_member",
    Kind.SERVICE: "read_leaders",
}
_SCANNED = {Kind.NAMESPACE: "records", Kind.GROUP: "members"}
"""Whose reads pass all rows of a partition, deleted ones too."""


class Revision(NamedTuple):
    """What changes with the records of a namespace.

    Attributes:
        number: Every write raises it.
        names: Differs after a write that added a name or removed one.
    """

    number: int
    names: str


class States:
    """The targets of one namespace of the configuration."""

    def __init__(self, calls: Calls, folds: Folds) -> None:
        """Read with *calls*, and have *folds* fold what cannot be read."""
        self._calls = calls
        self._folds = folds
        self._overlaps = Overlaps(calls.orders)
        self._services = SharedReads(calls, "read_leaders", "read_many_leaders", "service")
        self._revisions = SharedReads(calls, "read_rev", "read_revs", "namespace")

    @property
    def told(self) -> int:
        """The greatest order of an answer other than to a watch."""
        return self._calls.orders.told

    def begin(self, targets: Iterable[Target]) -> tuple[int, Callable[[object], None]]:
        """Begin to look at *targets*; return the order of that look, and what to call in the end.

        Until then `accept` finds what another answer may have overtaken.
        """
        some = list(targets)
        for target in some:
            self._overlaps.begin(target)

        def end(_: object) -> None:
            for target in some:
                self._overlaps.end(target)

        return self._calls.orders.next(), end

    def accept(self, target: Target, order: int, entries: Mapping[str, Entry]) -> bool:
        """Say whether *entries* are not older than what overlapping reads of *target* found."""
        return self._overlaps.accept(target, order, entries)

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*, and miss nothing decided."""
        return self._scanned(target, self._calls.orders.tell, surely=True)

    def poll(self, target: Target, *, surely: bool = False) -> Future[Snapshot]:
        """Return the state of *target* as far as it was acknowledged; *surely*: or decided."""
        number = self._calls.orders.next
        if target.kind is Kind.SERVICE and not surely:
            return self._look(target, partial(self._services.read, target.scope), number)
        return self._scanned(target, number, surely=surely)

    def _scanned(
        self, target: Target, number: Callable[[], int], *, surely: bool
    ) -> Future[Snapshot]:
        """Read *target*, by itself; if too many deletions are in the way, once they are folded."""
        table, until = _SCANNED.get(target.kind), self._calls.until()
        statement = self._reading(surely=surely)(_READS[target.kind], *self._where(target))
        ask = partial(self._calls.send, Ask(statement, _itself, scans=table is not None), until)
        read = partial(self._look, target, ask, number)
        if table is None:
            return read()
        return self._folds.mended(Place(table, target.scope), read, until)

    def _look(
        self, target: Target, ask: Callable[[], Future[Answer]], number: Callable[[], int]
    ) -> Future[Snapshot]:
        """Read *target*, again if another read that overlaps found something else."""
        self._overlaps.begin(target)  # before the order: else a whole read might come between
        order = number()

        def read(answer: Answer) -> Future[Snapshot]:
            found = entries(target, answer)
            is_names = target.kind is Kind.NAMESPACE
            state = Snapshot(order, found) if is_names else snapshot(order, found)
            if self._overlaps.accept(target, order, state.entries):
                return Completed(state)
            return self._look(target, ask, number)

        looking = then(attempt(ask), read)
        looking.add_done_callback(lambda _: self._overlaps.end(target))
        return looking

    def records(
        self, namespace: str, names: Sequence[str], *, surely: bool
    ) -> Future[Mapping[str, Entry]]:
        """Return the records that are there, as `poll` does, of up to `readings.MOST` *names*."""
        where = (self._calls.root, namespace, sorted(names))
        statement = self._reading(surely=surely)("read_records", *where)
        return self._calls.send(Ask(statement, entries_of))

    def revision(self, namespace: str, *, with_names: bool) -> Future[Revision]:
        """Return what tells of writes of records of *namespace*; of those of names if asked."""
        if not with_names:
            return mapped(self._revisions.read(namespace), _revision)
        statement = self._calls.statements.poll("read_rev", self._calls.root, namespace)
        return self._calls.send(Ask(statement, _revision))

    def _reading(self, *, surely: bool) -> Callable[..., Statement]:
        return self._calls.statements.bind if surely else self._calls.statements.poll

    def _where(self, target: Target) -> tuple[Any, ...]:
        match target.kind:
            case Kind.VALUE:
                return (self._calls.root, target.scope, [target.name])
            case Kind.MEMBER:
                return (self._calls.root, target.scope, target.name)
            case _:
                return (self._calls.root, target.scope)


def entries(target: Target, answer: Answer) -> Mapping[str, Entry]:
    """Return what was found of *target*, unreadable rows included."""
    match target.kind:
        case Kind.VALUE:
            return entries_of(answer)
        case Kind.NAMESPACE:
            return {
                row["name"]: Entry(Version(row["version"]), "", b"")
                for row in answer.rows
                if row["version"] is not None
            }
        case Kind.GROUP | Kind.MEMBER:
            return {
                row["id"]: entry_of(row, "id", "members")
                for row in answer.rows
                if row["version"] is not None
            }
        case Kind.SERVICE:
            return service_of(answer.rows).leaders(target.scope)


def _revision(answer: Answer) -> Revision:
    if not answer.rows:
        return Revision(0, "")
    row = answer.rows[0]
    number: int = row["rev"] or 0
    head = row["nonce"] if row.get("name") == "" else None
    return Revision(number, head or str(number))


def _itself(answer: Answer) -> Answer:
    return answer


_LASTS = 2.0
_MORE_SECONDS = 1.0
"""For how many session timeouts, and seconds more, a row can be back at most, with time to spare:
it has its old end, in whole seconds, plus less than one timeout."""

_Row = tuple[str, Version]
"""The nonce and the version, which only a row that is back has in common with one that had gone."""


class ResurrectedRows:
    """Leaves out who is back from the dead. For one observer."""

    def __init__(self, clock: Clock, timeout_seconds: float) -> None:
        """Have seen no row; sessions last *timeout_seconds*."""
        self._clock = clock
        self._seconds = _LASTS * timeout_seconds + _MORE_SECONDS
        self._there: set[_Row] = set()
        self._until: dict[_Row, float] = {}

    def left_out(self, entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return *entries*, the newest state, without those that had gone a short while ago."""
        now = self._clock.now()
        there = {_row(entry) for entry in entries.values()}
        until = {row: end for row, end in self._until.items() if end > now}
        until.update(dict.fromkeys(self._there - there - until.keys(), now + self._seconds))
        self._there, self._until = there, until
        return {name: entry for name, entry in entries.items() if _row(entry) not in until}


def _row(entry: Entry) -> _Row:
    return entry.nonce, entry.version
