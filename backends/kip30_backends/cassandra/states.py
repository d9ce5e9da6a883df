"""Whole targets, read at once."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from kip30.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.election import service_of
from kip30_backends.cassandra.library import Statement
from kip30_backends.cassandra.orders import Overlaps
from kip30_backends.cassandra.readings import entries_of, entry_of

_READS = {
    Kind.VALUE: "read_records",
    Kind.NAMESPACE: "read_names",
    Kind.GROUP: "read_members",
    Kind.SERVICE: "read_leaders",
}


class States:
    """The targets of one namespace of the configuration."""

    def __init__(self, calls: Calls) -> None:
        """Read with *calls*."""
        self._calls = calls
        self._overlaps = Overlaps(calls.orders)

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*, and miss nothing decided."""
        statement = self._calls.statements.bind(_READS[target.kind], *self._where(target))
        return self._look(target, statement, self._calls.orders.tell, self._calls.until())

    def poll(self, target: Target, *, surely: bool = False) -> Future[Snapshot]:
        """Return the state of *target* as far as it was acknowledged; *surely*: or decided."""
        statement = self._reading(surely=surely)(_READS[target.kind], *self._where(target))
        return self._look(target, statement, self._calls.orders.next, self._calls.until())

    def _look(
        self, target: Target, statement: Statement, number: Callable[[], int], until: float
    ) -> Future[Snapshot]:
        """Read *target*, again if another read that overlaps found something else."""
        self._overlaps.begin(target)  # before the order: else a whole read might come between
        order = number()

        def read(answer: Answer) -> Snapshot | Future[Snapshot]:
            found = entries(target.kind, answer)
            if self._overlaps.accept(target, order, found):
                return Snapshot(order, found)
            return self._look(target, statement, number, until)

        looking = self._calls.send(Ask(statement, read), until)
        looking.add_done_callback(lambda _: self._overlaps.end(target))
        return looking

    def records(
        self, namespace: str, names: Sequence[str], *, surely: bool
    ) -> Future[Mapping[str, Entry]]:
        """Return the records that are there, as `poll` does, of up to `readings.MOST` *names*."""
        where = (self._calls.root, namespace, sorted(names))
        statement = self._reading(surely=surely)("read_records", *where)
        return self._calls.send(Ask(statement, entries_of))

    def revision(self, namespace: str) -> Future[int]:
        """Return the number that every write of a record of *namespace* raises."""
        statement = self._calls.statements.poll("read_rev", self._calls.root, namespace)
        return self._calls.send(Ask(statement, _revision))

    def _reading(self, *, surely: bool) -> Callable[..., Statement]:
        return self._calls.statements.bind if surely else self._calls.statements.poll

    def _where(self, target: Target) -> tuple[Any, ...]:
        names = ([target.name],) if target.kind is Kind.VALUE else ()
        return (self._calls.root, target.scope, *names)


def entries(kind: Kind, answer: Answer) -> Mapping[str, Entry]:
    """Return what was found of a target of *kind*."""
    match kind:
        case Kind.VALUE:
            return entries_of(answer)
        case Kind.NAMESPACE:
            return {
                row["name"]: Entry(Version(row["version"]), "", b"")
                for row in answer.rows
                if row["version"] is not None
            }
        case Kind.GROUP:
            return {row["id"]: entry_of(row) for row in answer.rows if row["version"] is not None}
        case Kind.SERVICE:
            return service_of(answer.rows).leaders()


def _revision(answer: Answer) -> int:
    revision: int | None = answer.rows[0]["rev"] if answer.rows else None
    return revision or 0
