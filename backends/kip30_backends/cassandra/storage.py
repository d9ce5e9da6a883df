"""Records: a partition per namespace, whose revision becomes the version of what is written.

Writes that wait for one partition travel together. A refused batch answers with every row that it
met. Writes that are refused by that have their answer; the others, which only travelled with them
or met a higher revision, are sent again under a new revision.

Each batch is signed: it leaves its revision in the partition, beside the name of the client. A
client has one under way at a time, so if an answer was lost the signature tells what became of it,
whatever other clients have written since.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.kit.following import all_of, attempt, gathered, or_unknown, then
from kip30.driver.kit.futures import Completed, fail, mapped, succeed
from kip30.driver.records import Condition, Entry, Fence, NamePage, Version, Write, new_nonce
from kip30.errors import StoreError
from kip30.names import Key
from kip30_backends.cassandra.batched_reads import MOST, BatchedReads
from kip30_backends.cassandra.client.library import Row, Statement
from kip30_backends.cassandra.fences import Fences, exactly, form, height, refusal
from kip30_backends.cassandra.folding import SIGNED_SECONDS, Folds, Place
from kip30_backends.cassandra.partition_queue import PartitionQueues
from kip30_backends.cassandra.request import Answer, Ask, Calls, acknowledged

_MOST = 100
_MOST_BYTES = 512 * 1024
_NOT_DONE = False
_TABLE = "records"

_NO_FENCE: tuple[str, int | None] = ("", None)
"""Holds everywhere, for no service has this name."""


@dataclass(eq=False, slots=True)
class Job:
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

    def __init__(self, calls: Calls, fences: Fences, folds: Folds) -> None:
        """Send with *calls*, and have *folds* count deletions."""
        self._calls = calls
        self._fences = fences
        self._folds = folds
        self._name = new_nonce()
        self._lines: PartitionQueues[Job] = PartitionQueues(calls.pulse, _fitting, self._commit)

    def add(self, write: Write) -> Future[Version]:
        """Return the version that *write* will have."""
        job = Job(write, self._calls.until())
        self._lines.join(write.key.namespace, job)
        return job.answer

    def _commit(self, namespace: str, jobs: Sequence[Job], until: float) -> Future[Sequence[Job]]:
        calls, rev = self._calls, self._calls.revisions.next((_TABLE, namespace))

        def read(answer: Answer) -> Future[Sequence[Job]]:
            if answer.applied:
                self._folds.noted(_TABLE, namespace, _deletions(jobs))
                return _all_done(jobs, rev)
            if answer.is_sure:
                return self._refused(namespace, jobs, answer, until)
            settled = self._settled(namespace, rev, answer, until)
            return then(or_unknown(settled), partial(go_on, answer))

        def go_on(answer: Answer, was_done: bool) -> Future[Sequence[Job]]:  # noqa: FBT001  a result
            return (
                _all_done(jobs, rev) if was_done else self._refused(namespace, jobs, answer, until)
            )

        statements = [one for job in jobs for one in self._bound(job, rev)]
        jobs = [job for job in jobs if not job.answer.done()]
        if not jobs:
            return Completed(())
        statement = calls.statements.batch([*statements, *self._marks(namespace, jobs, rev)])
        return calls.send(Ask(statement, read, writes=True), until)

    def _bound(self, job: Job, rev: int) -> list[Statement]:
        """Return the statement of *job*; if there can be none, fail that job alone."""
        try:
            return [self._statement(job, rev)]
        except Exception as error:  # noqa: BLE001  the driver raises what it likes
            fail(job.answer, StoreError(f"{str(job.write.key)!r} cannot be written so: {error}"))
            return []

    def _marks(self, namespace: str, jobs: Sequence[Job], rev: int) -> list[Statement]:
        bind, where = self._calls.statements.bind, (self._calls.root, namespace)
        statements = list[Statement]()
        if any(_may_change_names(job.write) for job in jobs):
            statements.append(bind("mark", rev, str(rev), *where))
        return [*statements, bind("sign", SIGNED_SECONDS, self._name, rev, *where)]

    def _settled(self, namespace: str, rev: int, answer: Answer, until: float) -> Future[bool]:
        """Return whether what was sent under *rev* has been done; if not, it never will be."""
        met = answer.rows[0].get("rev")
        if met is None:
            begun = self._begin(namespace, until)
            return then(begun, lambda _: self._barred(namespace, rev, until))
        if met >= rev:
            return self._was_done(namespace, rev, until)
        return self._barred(namespace, rev, until)

    def _barred(self, namespace: str, rev: int, until: float) -> Future[bool]:
        """Raise the revision to *rev*, which nothing can be sent under any more; or see it done.

        A partition without a revision takes no other one, so it must have been begun.
        """
        bar = self._calls.statements.bind("advance_records", rev, self._calls.root, namespace, rev)

        def read(barred: Answer) -> Future[bool]:
            if barred.applied:
                return Completed(_NOT_DONE)
            return self._was_done(namespace, rev, until)

        return self._calls.send(Ask(bar, read, writes=True), until)

    def _was_done(self, namespace: str, rev: int, until: float) -> Future[bool]:
        """Read the signature of this client, and miss nothing decided."""

        def read(answer: Answer) -> bool:
            done = answer.rows[0].get("done") if answer.rows else None
            return done is not None and done.get(self._name) == rev

        statement = self._calls.statements.bind("read_done", self._calls.root, namespace)
        return self._calls.send(Ask(statement, read), until)

    def _statement(self, job: Job, rev: int) -> Statement:
        key, nonce, data, condition, _ = job.write
        verb = "delete" if data is None else "put"
        new = () if data is None else (rev, rev, nonce, data)
        where = (self._calls.root, key.namespace, key.name)
        met = (rev, *job.fence, *exactly(condition))
        return self._calls.statements.bind(f"{verb}_{form(job.write)}", *new, *where, *met)

    def _refused(
        self, namespace: str, jobs: Sequence[Job], answer: Answer, until: float
    ) -> Future[Sequence[Job]]:
        """Tell those that met what refuses them, and prepare the way for the others."""
        partition = answer.rows[0]
        rows = {row["name"]: row for row in answer.rows if row.get("name") is not None}
        open_jobs = [job for job in jobs if not _is_told(job, rows, partition)]
        if not open_jobs:
            return Completed(())
        self._calls.revisions.saw((_TABLE, namespace), partition.get("rev"))
        if partition.get("rev") is None:
            return then(self._begin(namespace, until), lambda _: Completed(open_jobs))
        return self._fenced_off(namespace, open_jobs, partition, until)

    def _begin(self, namespace: str, until: float) -> Future[None]:
        """Give a partition its first revision."""
        statement = self._calls.statements.bind("begin_records", self._calls.root, namespace)
        return self._calls.send(Ask(statement, acknowledged, writes=True), until)

    def _fenced_off(
        self, namespace: str, jobs: Sequence[Job], partition: Row, until: float
    ) -> Future[Sequence[Job]]:
        """Have the fences erected that jobs need and that are not there; fail those it cannot."""
        lacking = {
            fence
            for job in jobs
            if (fence := job.write.fence) and height(partition, fence.service) != fence.epoch
        }
        erected = {fence: attempt(self._fences.erect, namespace, fence, until) for fence in lacking}
        return then(all_of([*erected.values()]), lambda _: Completed(_unless_failed(jobs, erected)))


def _unless_failed(jobs: Sequence[Job], erected: Mapping[Fence, Future[None]]) -> Sequence[Job]:
    """Fail the jobs whose fence could not be erected, and return the others."""
    for job in jobs:
        done = erected.get(job.write.fence) if job.write.fence else None
        error = done.exception() if done is not None else None
        if error is not None:
            fail(job.answer, error)
    return [job for job in jobs if not job.answer.done()]


def _is_told(job: Job, rows: Mapping[str, Row], partition: Row) -> bool:
    """Settle *job* if what a refused statement met tells how it ended."""
    row = rows.get(job.write.key.name)
    version: int | None = None if row is None else row.get("version")
    if row is not None and version is not None and row.get("nonce") == job.write.nonce:
        succeed(job.answer, Version(version))
    else:
        error = refusal(job.write, version, partition)
        if error is not None:
            fail(job.answer, error)
    return job.answer.done()


def _fitting(line: deque[Job]) -> list[Job]:
    """Take off the front of *line* what can be one statement.

    No key is in it twice, and no service with two epochs: of two conditions on one fence the
    server heeds one.
    """
    jobs: list[Job] = []
    names = set[str]()
    epochs = dict[str, int | None]()
    size = 0
    while line and len(jobs) < _MOST:
        job = line[0]
        service, epoch = job.fence
        size += len(job.write.data or b"")
        fits = job.write.key.name not in names and epochs.setdefault(service, epoch) == epoch
        if jobs and (size > _MOST_BYTES or not fits):
            break
        names.add(job.write.key.name)
        jobs.append(line.popleft())
    return jobs


def _deletions(jobs: Sequence[Job]) -> int:
    """Return how many rows *jobs* delete, and at least the one signature that will expire."""
    return sum(job.write.data is None for job in jobs) or 1


def _may_change_names(write: Write) -> bool:
    """Say whether *write* deletes a key, or may create one."""
    return write.data is None or write.condition in {Condition.ABSENT, Condition.ANY}


def _all_done(jobs: Sequence[Job], rev: int) -> Future[Sequence[Job]]:
    for job in jobs:
        succeed(job.answer, Version(_version(job.write, rev)))
    return Completed(())


def _version(write: Write, rev: int) -> int:
    """Return the version that was written, or that of what was deleted, if *write* tells."""
    if write.data is None and isinstance(write.condition, Version):
        return write.condition.major
    return rev


_Part = tuple[str, list[str]]


class CassandraStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, calls: Calls, fences: Fences, folds: Folds) -> None:
        """Keep records with *calls*."""
        self._calls = calls
        self._folds = folds
        self._writes = BatchedWrites(calls, fences, folds)
        self._reads = BatchedReads(calls)

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        self._calls.check()
        if len(keys) == 1:
            return self._reads.add(keys[0].namespace, (keys[0].name,))
        parts = list(_parts(keys))
        reads = [self._reads.add(namespace, names) for namespace, names in parts]
        return mapped(gathered(reads), partial(_in_order, keys, parts))

    @override
    def write(self, write: Write) -> Future[Version]:
        self._calls.check()
        return self._writes.add(write)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        self._calls.check()
        return [self._writes.add(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        statement = self._calls.statements.bind(
            "list_names", self._calls.root, namespace, after, limit
        )
        until = self._calls.until()
        ask = Ask(statement, partial(_names, limit), scans=True)
        read = partial(self._calls.send, ask, until)
        return self._folds.mended(Place("records", namespace), read, until)


def _parts(keys: Iterable[Key]) -> Iterator[_Part]:
    """Yield *keys* by namespace, so many names at a time."""
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
