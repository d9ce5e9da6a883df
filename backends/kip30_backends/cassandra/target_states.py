"""Reading targets: as rows, without those that reappear after they had expired.

A conditional write judges what has expired by the time at which it began. So a renewal that a node
delayed can restore a row that a read has already missed. By then its holder has given it up: the
lease ends before the row can be missed, and a lease that has ended is not renewed again.

A restored row has the nonce and the version that it had when it was missed. A nonce alone does not
identify it: a client whose claim has an unknown outcome claims again with the same nonce, and gets
a greater version. Nor does a version: in a cluster that lost all its data they start again.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kip30.driver.clock import Clock
from kip30.driver.kit.batch_queue import BatchQueue
from kip30.driver.kit.futures import all_of, fail, mapped, succeed
from kip30.driver.kit.operation import Steps, begun
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30.errors import StoreError
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest, itself
from kip30_backends.cassandra.client.connections import Row, Statement
from kip30_backends.cassandra.observation_order import OverlappingReads
from kip30_backends.cassandra.serial_reads import SerialReads
from kip30_backends.cassandra.tombstone_folding import FoldingQueue, Partition

_NO_VERSION = Version(0)
MOST = 100
"""Most records that are read at a time: they may have 256 KiB each."""
_MOST_PARTITIONS = 100
"""Most partitions of which one request reads a row each."""
NO_EPOCH = 0
"""The epoch of a service that was not led yet, or of which nothing was left."""


def entries_of(answer: Answer) -> dict[str, Entry]:
    """Return the records among the rows found, as `entry_of` does."""
    return {
        row["name"]: entry_of(row, "name", "records")
        for row in answer.rows
        if row["version"] is not None
    }


def entry_of(row: Row, column: str, table: str) -> Entry:
    """Return the record in a *row* of *table*, named by *column*, or what `unreadable` does.

    Each write by kip30 sets all columns of a row.
    """
    nonce, data = row["nonce"], row["data"]
    if nonce and data is not None:
        return Entry(Version(row["version"]), nonce, data)
    return unreadable(f"{column} = {row[column]!r} in table {table}")


def unreadable(place: str) -> Entry:
    """Return the entry that marks a row at *place* as no record: it has no nonce."""
    reason = f"the row where {place} is no record of this version of kip30: delete it"
    return Entry(_NO_VERSION, "", reason.encode())


def checked(entry: Entry | None) -> Entry | None:
    """Return *entry*.

    Raises:
        StoreError: It marks a row that is no record.
    """
    if entry is not None and not entry.nonce:
        raise StoreError(entry.data.decode())
    return entry


def snapshot(order: int, found: Mapping[str, Entry]) -> Snapshot:
    """Return the state with *found*, except for unreadable entries."""
    bad = {name: entry.data.decode() for name, entry in found.items() if not entry.nonce}
    if not bad:
        return Snapshot(order, found)
    return Snapshot(order, {name: one for name, one in found.items() if name not in bad}, bad)


class Service(NamedTuple):
    """The state of a service.

    Attributes:
        epoch: The newest one; None before the first.
        fenced: The namespaces with a fence of this service.
        candidate: The leader, or None.
        nonce: Of the leader's record.
        data: The data of the leader.
        is_readable: Whether the row of the leader is one of kip30's, if there is one.
        creation: The mark from before its first leader; see `election`. None once it has had one.
    """

    epoch: int | None = None
    fenced: frozenset[str] = frozenset()
    candidate: str | None = None
    nonce: str = ""
    data: bytes = b""
    is_readable: bool = True
    creation: int | None = None

    def admits(self, other: "Service") -> bool:
        """Return whether a claim that knew *other* can be granted once the service is vacant."""
        mine = (self.epoch, self.fenced, self.creation)
        return mine == (other.epoch, other.fenced, other.creation)

    def leaders(self, service: str) -> dict[str, Entry]:
        """Return the leader, as `snapshot` takes it."""
        if not self.is_readable:
            return {service: unreadable(seat_of(service))}
        if self.candidate is None:
            return {}
        return {self.candidate: Entry(Version(self.epoch or 0), self.nonce, self.data)}


def service_of(rows: Sequence[Row]) -> Service:
    """Return the state of a service from the rows of its partition."""
    if not rows:
        return Service()
    first = rows[0]
    epoch, fenced = first.get("epoch"), frozenset[str](first.get("fenced") or ())
    for row in rows:
        candidate, nonce, data = row.get("candidate"), row.get("nonce"), row.get("data")
        if candidate is not None and nonce and data is not None:
            return Service(epoch, fenced, candidate, nonce, data)
        if candidate is not None or nonce is not None or data is not None:
            return Service(epoch, fenced, candidate, is_readable=False)
    return Service(epoch, fenced, creation=first.get("beat") if epoch == NO_EPOCH else None)


def seat_of(service: str) -> str:
    """Return a text that names the leader's place of *service*."""
    return f"service = {service!r} and seat = 0 in table leaders"


@dataclass(eq=False, slots=True)
class SharedRead:
    """A partition to be read."""

    scope: str
    answer: Future[Answer] = field(default_factory=Future[Answer])


class SharedReads:
    """Reads acknowledged writes in partitions of one table. Thread-safe.

    While one request is under way the next ones gather. So most travel together when there are
    many, and none waits when there are few.
    """

    def __init__(self, calls: Calls, one: str, many: str, column: str) -> None:
        """Read with the statements *one* and *many*; *column* separates the rows of the latter."""
        self._calls = calls
        self._one = one
        self._many = many
        self._column = column
        self._queue: BatchQueue[SharedRead] = BatchQueue(most=_MOST_PARTITIONS, under_way=1)

    def read(self, scope: str) -> Future[Answer]:
        """Return the rows of the partition *scope*, read once the requests before are done."""
        read = SharedRead(scope)
        if self._queue.add(read):
            self._serve()
        return read.answer

    def _serve(self) -> None:
        # A loop, because immediate answers would nest as deep as there are requests.
        while reads := self._queue.take():
            done = begun(self._read(reads))
            if not done.done():
                done.add_done_callback(lambda _: self._serve())
                return

    def _read(self, reads: Sequence[SharedRead]) -> Steps[None]:
        """Read *reads* together; if that fails, each alone, because one may fail them all."""
        if len(reads) > 1:
            with contextlib.suppress(Exception):
                yield from self._read_together(reads)
                return
        yield all_of([begun(self._read_alone(read)) for read in reads])

    def _read_together(self, reads: Sequence[SharedRead]) -> Steps[None]:
        scopes = sorted({read.scope for read in reads})
        statement = self._calls.statements.poll(self._many, self._calls.root, scopes)
        answer = yield from self._calls.read(statement, self._calls.until())
        rows = defaultdict[str, list[Row]](list)
        for row in answer.rows:
            rows[row[self._column]].append(row)
        for read in reads:
            succeed(read.answer, answer._replace(rows=rows[read.scope]))

    def _read_alone(self, read: SharedRead) -> Steps[None]:
        try:
            statement = self._calls.statements.poll(self._one, self._calls.root, read.scope)
            answer = yield from self._calls.read(statement, self._calls.until())
        except Exception as error:  # noqa: BLE001  a future carries any error
            fail(read.answer, error)
        else:
            succeed(read.answer, answer)


_READS = {
    Kind.VALUE: "read_records",
    Kind.NAMESPACE: "read_names",
    Kind.GROUP: "read_members",
    Kind.MEMBER: "read_member",
    Kind.SERVICE: "read_leaders",
}
_SCANNED = {Kind.NAMESPACE: "records", Kind.GROUP: "members"}
"""Tables of the targets whose reads pass all rows of a partition, deleted ones too."""


class Revision(NamedTuple):
    """The marks of a namespace that change with its records.

    Attributes:
        number: Every write raises it.
        names: Differs after a write that added a name or removed one.
    """

    number: int
    names: str


class TargetStates:
    """The targets of one namespace of the configuration."""

    def __init__(self, calls: Calls, folding: FoldingQueue) -> None:
        """Read with *calls*; *folding* folds partitions that cannot be read."""
        self._calls = calls
        self._folding = folding
        self._overlaps = OverlappingReads(calls.orders)
        self._reads = SerialReads(partial(self._scanned, number=calls.orders.stamp, surely=True))
        self._services = SharedReads(calls, "read_leaders", "read_many_leaders", "service")
        self._revisions = SharedReads(calls, "read_rev", "read_revs", "namespace")

    @property
    def last_stamp(self) -> int:
        """The greatest order of an answer other than to a watch."""
        return self._calls.orders.last_stamp

    @contextlib.contextmanager
    def looking(self, targets: Iterable[Target]) -> Generator[int]:
        """Enter a block that looks at *targets*; it receives the order of that look.

        Until it ends, `accept` detects what another answer may have overtaken.
        """
        some = list(targets)
        for target in some:
            self._overlaps.begin(target)
        try:
            yield self._calls.orders.next()
        finally:
            for target in some:
                self._overlaps.end(target)

    def accept(self, target: Target, order: int, entries: Mapping[str, Entry]) -> bool:
        """Return whether no overlapping read of *target* found newer *entries*."""
        return self._overlaps.accept(target, order, entries)

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*, and miss no decided write."""
        return self._reads.read(target)

    def poll(self, target: Target, *, surely: bool = False) -> Future[Snapshot]:
        """Return the state of *target* from acknowledged writes; *surely*: from decided ones."""
        number = self._calls.orders.next
        if target.kind is Kind.SERVICE and not surely:
            return self._look(target, partial(self._services.read, target.scope), number)
        return self._scanned(target, number, surely=surely)

    def _scanned(
        self, target: Target, number: Callable[[], int], *, surely: bool
    ) -> Future[Snapshot]:
        """Read *target*, by itself; if deletions make that fail, again once they are folded."""
        table, until = _SCANNED.get(target.kind), self._calls.until()
        statement = self._reading(surely=surely)(_READS[target.kind], *self._where(target))
        ask = partial(
            self._calls.send, TypedRequest(statement, itself, scans=table is not None), until
        )
        read = partial(self._look, target, ask, number)
        if table is None:
            return read()
        place = Partition(table, target.scope)
        return begun(self._folding.retried_after_folding(place, read, until))

    def _look(
        self, target: Target, ask: Callable[[], Future[Answer]], number: Callable[[], int]
    ) -> Future[Snapshot]:
        return begun(self._looked(target, ask, number))

    def _looked(
        self, target: Target, ask: Callable[[], Future[Answer]], number: Callable[[], int]
    ) -> Steps[Snapshot]:
        """Read *target*; read it again if an overlapping read found something else."""
        # Begun before the order is taken: otherwise a whole read might come between.
        self._overlaps.begin(target)
        try:
            while True:
                order = number()
                answer: Answer = yield ask()
                found = entries(target, answer)
                is_names = target.kind is Kind.NAMESPACE
                state = Snapshot(order, found) if is_names else snapshot(order, found)
                if self._overlaps.accept(target, order, state.entries):
                    return state
        finally:
            self._overlaps.end(target)

    def records(
        self, namespace: str, names: Sequence[str], *, surely: bool
    ) -> Future[Mapping[str, Entry]]:
        """Return the existing records, as `poll` does, of up to `MOST` *names*."""
        where = (self._calls.root, namespace, sorted(names))
        statement = self._reading(surely=surely)("read_records", *where)
        return self._calls.send(TypedRequest(statement, entries_of))

    def revision(self, namespace: str, *, with_names: bool) -> Future[Revision]:
        """Return the marks of writes of records of *namespace*; those of its names if asked."""
        if not with_names:
            return mapped(self._revisions.read(namespace), _revision)
        statement = self._calls.statements.poll("read_rev", self._calls.root, namespace)
        return self._calls.send(TypedRequest(statement, _revision))

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
    """Return the entries found of *target*, unreadable rows included."""
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


_LASTS = 2.0
_MORE_SECONDS = 1.0
"""For how many session timeouts, and seconds more, a row can be back at most, with time to spare:
it has its old end, in whole seconds, plus less than one timeout."""

_Row = tuple[str, Version]
"""The nonce and the version, which only a row that is back has in common with one that had gone."""


class ResurrectedRows:
    """Leaves out rows that reappear after they had expired. For one observer."""

    def __init__(self, clock: Clock, timeout_seconds: float) -> None:
        """Start without rows; sessions last *timeout_seconds*."""
        self._clock = clock
        self._seconds = _LASTS * timeout_seconds + _MORE_SECONDS
        # Both describe the newest state: its rows, and the rows left out, with the time until which
        # they are left out. Written by one look at a time.
        self._there: set[_Row] = set()
        self._until: dict[_Row, float] = {}

    def left_out(self, entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return *entries*, the newest state, without those that had expired a short while ago."""
        now = self._clock.now()
        there = {_row(entry) for entry in entries.values()}
        until = {row: end for row, end in self._until.items() if end > now}
        until.update(dict.fromkeys(self._there - there - until.keys(), now + self._seconds))
        self._there, self._until = there, until
        return {name: entry for name, entry in entries.items() if _row(entry) not in until}


def _row(entry: Entry) -> _Row:
    return entry.nonce, entry.version
