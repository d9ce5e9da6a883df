"""Records: a partition per namespace, whose revision becomes the version of what is written.

Writes that wait for one partition travel together. A refused batch returns every row that it found.
Writes refused by one of these have their answer; the others, which only travelled with them or
found a higher revision, are sent again under a new revision.

Each batch is signed: it leaves its revision in the partition, beside the name of the client. A
client has one batch under way at a time, so after a lost answer the signature tells whether it was
done, even if other clients have written since.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.futures import all_of, fail, gathered, mapped, succeed
from kip30.driver.kit.operation import Steps, begun, settling
from kip30.driver.records import Condition, Entry, Fence, NamePage, Version, Write, new_nonce
from kip30.errors import DefiniteError, StoreError, UnavailableError
from kip30.names import Key
from kip30_backends.cassandra.calls import Answer, Calls, TypedRequest
from kip30_backends.cassandra.client.connections import Row, Statement
from kip30_backends.cassandra.election import Fences, height
from kip30_backends.cassandra.partition_queue import PartitionQueues
from kip30_backends.cassandra.target_states import MOST, checked, entries_of
from kip30_backends.cassandra.tombstone_folding import SIGNED_SECONDS, FoldingQueue, Partition

_MOST = 100
_MOST_BYTES = 512 * 1024
_NOT_DONE = False
_TABLE = "records"

_NO_FENCE: tuple[str, int | None] = ("", None)
"""Holds everywhere, for no service has this name."""


@dataclass(eq=False, slots=True)
class QueuedWrite:
    """A write that waits for its turn or its answer."""

    write: Write
    until: float
    answer: Future[Version] = field(default_factory=Future[Version])

    @property
    def fence(self) -> tuple[str, int | None]:
        """The service and the epoch that its partition must have."""
        return self.write.fence or _NO_FENCE


class BatchedWrites:
    """Does writes, partition by partition. Thread-safe."""

    def __init__(self, calls: Calls, fences: Fences, folding: FoldingQueue) -> None:
        """Send with *calls*; report deletions to *folding*."""
        self._calls = calls
        self._fences = fences
        self._folding = folding
        # The client name in this object's signatures. Another object numbers its batches itself.
        self._name = new_nonce()
        self._queues = PartitionQueues[QueuedWrite](calls.timer, _fitting, self._commit)

    def add(self, write: Write) -> Future[Version]:
        """Return the future version of *write*."""
        queued = QueuedWrite(write, self._calls.until())
        self._queues.join(write.key.namespace, queued)
        return queued.answer

    def _commit(
        self, namespace: str, batch: Sequence[QueuedWrite], until: float
    ) -> Future[Sequence[QueuedWrite]]:
        return begun(self._committed(namespace, batch, until))

    def _committed(
        self, namespace: str, batch: Sequence[QueuedWrite], until: float
    ) -> Steps[Sequence[QueuedWrite]]:
        """Do *batch*; return the writes that must be sent again."""
        calls, rev = self._calls, self._calls.revisions.next((_TABLE, namespace))
        # One that its caller has cancelled is left out with its guards and its mark.
        bound = [
            (queued, one)
            for queued in batch
            if not queued.answer.done()
            for one in self._bound(queued, rev)
        ]
        if not bound:
            return ()
        batch, statements = [queued for queued, _ in bound], [one for _, one in bound]
        statement = calls.statements.batch([*statements, *self._marks(namespace, batch, rev)])
        answer = yield from calls.write(statement, until)
        if answer.applied:
            self._folding.noted(_TABLE, namespace, _deletions(batch))
            return _all_done(batch, rev)
        if not answer.is_sure:
            with settling():
                was_done = yield from self._settled(namespace, rev, answer, until)
            if was_done:
                return _all_done(batch, rev)
        return (yield from self._refused(namespace, batch, answer, until))

    def _bound(self, queued: QueuedWrite, rev: int) -> list[Statement]:
        """Return the statement of *queued*; if none is possible, fail *queued* alone."""
        try:
            return [self._statement(queued, rev)]
        except Exception as error:  # noqa: BLE001  the driver raises what it likes
            reason = f"{str(queued.write.key)!r} cannot be written: {error}"
            fail(queued.answer, StoreError(reason))
            return []

    def _marks(self, namespace: str, batch: Sequence[QueuedWrite], rev: int) -> list[Statement]:
        bind, where = self._calls.statements.bind, (self._calls.root, namespace)
        statements = [
            bind("guard", _compared(one.version), *where, one.key.name, _compared(one.version))
            for one in dict.fromkeys(one for queued in batch for one in queued.write.guards)
        ]
        if any(_may_change_names(queued.write) for queued in batch):
            statements.append(bind("mark", rev, str(rev), *where))
        return [*statements, bind("sign", SIGNED_SECONDS, self._name, rev, *where)]

    def _settled(self, namespace: str, rev: int, answer: Answer, until: float) -> Steps[bool]:
        """Return whether the batch sent under *rev* was done; if not, it never will be."""
        met = answer.rows[0].get("rev")
        if met is None:
            yield from self._begin(namespace, until)
        elif met >= rev:
            return (yield from self._was_done(namespace, rev, until))
        return (yield from self._barred(namespace, rev, until))

    def _barred(self, namespace: str, rev: int, until: float) -> Steps[bool]:
        """Raise the revision to *rev*, so that nothing sent under it can be done; or see it done.

        A partition without a revision accepts no other one, so it must have been begun.
        """
        bar = self._calls.statements.bind("advance_records", rev, self._calls.root, namespace, rev)
        if (yield from self._calls.write(bar, until)).applied:
            return _NOT_DONE
        return (yield from self._was_done(namespace, rev, until))

    def _was_done(self, namespace: str, rev: int, until: float) -> Steps[bool]:
        """Read the signature of this client, and miss no decided write."""
        statement = self._calls.statements.bind("read_done", self._calls.root, namespace)
        rows = (yield from self._calls.read(statement, until)).rows
        done = rows[0].get("done") if rows else None
        return done is not None and done.get(self._name) == rev

    def _statement(self, queued: QueuedWrite, rev: int) -> Statement:
        key, nonce, data, condition, *_ = queued.write
        verb = "delete" if data is None else "put"
        new = () if data is None else (rev, rev, nonce, data)
        where = (self._calls.root, key.namespace, key.name)
        met = (rev, *queued.fence, *_exactly(condition))
        return self._calls.statements.bind(f"{verb}_{_form(queued.write)}", *new, *where, *met)

    def _refused(
        self, namespace: str, batch: Sequence[QueuedWrite], answer: Answer, until: float
    ) -> Steps[Sequence[QueuedWrite]]:
        """Answer the writes that the rows found refuse, and prepare the retry of the others."""
        partition = answer.rows[0]
        rows = {row["name"]: row for row in answer.rows if row.get("name") is not None}
        open_writes = [queued for queued in batch if not _settled_by_rows(queued, rows, partition)]
        if not open_writes:
            return ()
        self._calls.revisions.observe((_TABLE, namespace), partition.get("rev"))
        if partition.get("rev") is None:
            yield from self._begin(namespace, until)
            return open_writes
        return (yield from self._fenced_off(namespace, open_writes, partition, until))

    def _begin(self, namespace: str, until: float) -> Steps[Answer]:
        """Give a partition its first revision."""
        statement = self._calls.statements.bind("begin_records", self._calls.root, namespace)
        return self._calls.write(statement, until)

    def _fenced_off(
        self, namespace: str, batch: Sequence[QueuedWrite], partition: Row, until: float
    ) -> Steps[Sequence[QueuedWrite]]:
        """Raise the missing fences that *batch* needs; fail the writes for which that fails."""
        lacking = {
            fence
            for queued in batch
            if (fence := queued.write.fence) and height(partition, fence.service) != fence.epoch
        }
        raised = {
            fence: begun(self._fences.raise_one(namespace, fence, until)) for fence in lacking
        }
        yield all_of([*raised.values()])
        return _unless_failed(batch, raised)


def _unless_failed(
    batch: Sequence[QueuedWrite], raised: Mapping[Fence, Future[None]]
) -> Sequence[QueuedWrite]:
    """Fail the writes of *batch* whose fence could not be raised; return the others."""
    for queued in batch:
        done = raised.get(queued.write.fence) if queued.write.fence else None
        error = done.exception() if done is not None else None
        if error is not None:
            fail(queued.answer, error)
    return [queued for queued in batch if not queued.answer.done()]


def _settled_by_rows(queued: QueuedWrite, rows: Mapping[str, Row], partition: Row) -> bool:
    """Settle *queued* if the rows of a refused statement show its outcome."""

    def found(key: Key) -> Version | None:
        row = rows.get(key.name)
        version: int | None = None if row is None else row.get("version")
        return None if version is None else Version(version)

    version, row = found(queued.write.key), rows.get(queued.write.key.name)
    if row is not None and version is not None and row.get("nonce") == queued.write.nonce:
        succeed(queued.answer, version)
    else:
        error = _refusal(queued.write, found, partition)
        if error is not None:
            fail(queued.answer, error)
    return queued.answer.done()


def _fitting(queue: deque[QueuedWrite]) -> list[QueuedWrite]:
    """Take off the front of *queue* the writes that one statement can do.

    No key is in it twice, no service with two epochs, and no guard with two versions: of two
    conditions on one column the server checks one. No key that is written guards another one.
    """
    batch: list[QueuedWrite] = []
    names = set[str]()
    epochs = dict[str, int | None]()
    guards = dict[str, Version]()
    size = 0
    while queue and len(batch) < _MOST:
        queued = queue[0]
        service, epoch = queued.fence
        size += len(queued.write.data or b"")
        fits = queued.write.key.name not in names and epochs.setdefault(service, epoch) == epoch
        if guards or queued.write.guards:
            fits = fits and _keeps_apart(queued.write, names, guards)
        if batch and (size > _MOST_BYTES or not fits):
            break
        names.add(queued.write.key.name)
        guards.update((one.key.name, one.version) for one in queued.write.guards)
        batch.append(queue.popleft())
    return batch


def _keeps_apart(write: Write, names: Collection[str], guards: Mapping[str, Version]) -> bool:
    """Return whether *write* can travel with those of *names* and *guards*."""
    return write.key.name not in guards and all(
        one.key.name not in names and guards.get(one.key.name, one.version) == one.version
        for one in write.guards
    )


def _deletions(batch: Sequence[QueuedWrite]) -> int:
    """Return how many rows *batch* deletes, plus the one signature that will expire."""
    return sum(queued.write.data is None for queued in batch) or 1


def _may_change_names(write: Write) -> bool:
    """Return whether *write* deletes a key, or may create one."""
    return write.data is None or write.condition in {Condition.ABSENT, Condition.ANY}


def _all_done(batch: Sequence[QueuedWrite], rev: int) -> Sequence[QueuedWrite]:
    for queued in batch:
        succeed(queued.answer, Version(_version(queued.write, rev)))
    return ()


def _version(write: Write, rev: int) -> int:
    """Return the version that was written or deleted, if *write* determines it."""
    if write.data is None and isinstance(write.condition, Version):
        return write.condition.major
    return rev


_VERSIONS = range(2**63)
_NEVER = -1
"""A version that no record has: those of this store have no minor part."""


def _refusal(
    write: Write, found: Callable[[Key], Version | None], partition: Row
) -> DefiniteError | None:
    """Return why the versions *found* refuse a write; None if they do not."""
    if write.fence is not None:
        met = height(partition, write.fence.service)
        if met is None or met < write.fence.epoch:
            return None  # the version must be read first
        if met > write.fence.epoch:
            return refusals.fenced(write.fence)
    return refusals.unmet_guard(write, found) or refusals.unmet(write, found(write.key))


def _form(write: Write) -> str:
    """Return the name of the statement form for the condition of *write*."""
    if isinstance(write.condition, Version):
        return "exact"
    if write.data is None or write.condition is Condition.PRESENT:
        return "present"
    return "exact" if write.condition is Condition.ABSENT else "any"


def _compared(version: Version) -> int:
    """Return the value to compare the column of versions with."""
    is_possible = version.major in _VERSIONS and not version.minor
    return version.major if is_possible else _NEVER


def _exactly(condition: Condition | Version) -> tuple[int | None, ...]:
    """Return the version to compare with, if the statement form takes one."""
    if isinstance(condition, Version):
        return (_compared(condition),)
    return (None,) if condition is Condition.ABSENT else ()


@dataclass(eq=False, slots=True)
class QueuedRead:
    """Names whose records are requested; the answer is in their order."""

    names: Sequence[str]
    until: float
    answer: Future[list[Entry | None]] = field(default_factory=Future[list[Entry | None]])


class BatchedReads:
    """Reads records, partition by partition, and misses no decided write. Thread-safe."""

    def __init__(self, calls: Calls) -> None:
        """Read with *calls*."""
        self._calls = calls
        self._queues = PartitionQueues[QueuedRead](
            calls.timer, _fitting_reads, self._read, lost=UnavailableError
        )

    def add(self, namespace: str, names: Sequence[str]) -> Future[list[Entry | None]]:
        """Return the records of up to `MOST` *names*, in their order; None where there is none."""
        queued = QueuedRead(names, self._calls.until())
        self._queues.join(namespace, queued)
        return queued.answer

    def _read(
        self, namespace: str, batch: Sequence[QueuedRead], until: float
    ) -> Future[Sequence[QueuedRead]]:
        names = sorted({name for queued in batch for name in queued.names})
        statement = self._calls.statements.bind("read_records", self._calls.root, namespace, names)

        def tell(answer: Answer) -> Sequence[QueuedRead]:
            entries = entries_of(answer)
            for queued in batch:
                _answer(queued, entries)
            return ()

        return self._calls.send(TypedRequest(statement, tell), until)


def _answer(queued: QueuedRead, entries: Mapping[str, Entry]) -> None:
    """Answer *queued* from *entries*; an unreadable one fails no other read."""
    try:
        found = [checked(entries.get(name)) for name in queued.names]
    except StoreError as error:
        fail(queued.answer, error)
    else:
        succeed(queued.answer, found)


def _fitting_reads(queue: deque[QueuedRead]) -> list[QueuedRead]:
    batch = [queue.popleft()]
    size = len(batch[0].names)
    while queue and size + len(queue[0].names) <= MOST:
        size += len(queue[0].names)
        batch.append(queue.popleft())
    return batch


_Part = tuple[str, list[str]]


class CassandraStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, calls: Calls, fences: Fences, folding: FoldingQueue) -> None:
        """Keep records with *calls*."""
        self._calls = calls
        self._folding = folding
        self._writes = BatchedWrites(calls, fences, folding)
        self._reads = BatchedReads(calls)

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        self._calls.gate.check()
        if len(keys) == 1:
            return self._reads.add(keys[0].namespace, (keys[0].name,))
        parts = list(_parts(keys))
        reads = [self._reads.add(namespace, names) for namespace, names in parts]
        return mapped(gathered(reads), partial(_in_order, keys, parts))

    @override
    def write(self, write: Write) -> Future[Version]:
        self._calls.gate.check()
        return self._writes.add(write)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        self._calls.gate.check()
        return [self._writes.add(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        statement = self._calls.statements.bind(
            "list_names", self._calls.root, namespace, after, limit
        )
        until = self._calls.until()
        ask = TypedRequest(statement, partial(_names, limit), scans=True)
        place, read = Partition("records", namespace), partial(self._calls.send, ask, until)
        return begun(self._folding.retried_after_folding(place, read, until))


def _parts(keys: Iterable[Key]) -> Iterator[_Part]:
    """Yield *keys* by namespace, a limited number of names at a time."""
    names = defaultdict[str, list[str]](list)
    for key in keys:
        names[key.namespace].append(key.name)
    for namespace, some in names.items():
        for at in range(0, len(some), MOST):
            yield namespace, some[at : at + MOST]


def _in_order(
    keys: Iterable[Key], parts: Iterable[_Part], read: Iterable[list[Entry | None]]
) -> list[Entry | None]:
    """Return what was *read*, part by part, in the order of *keys*."""
    found = {
        (namespace, name): entry
        for (namespace, names), entries in zip(parts, read, strict=True)
        for name, entry in zip(names, entries, strict=True)
    }
    return [found[key] for key in keys]


def _names(limit: int, answer: Answer) -> NamePage:
    names = [row["name"] for row in answer.rows if row["version"] is not None]
    return NamePage(names, is_last=not names or len(answer.rows) < limit)
