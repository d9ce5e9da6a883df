"""Reads that travel together: of one partition, or of many small ones in one request."""

import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from kip30.driver.kit.following import all_of, attempt, copy, whatever
from kip30.driver.kit.futures import Completed, fail, succeed
from kip30.driver.records import Entry, Snapshot, Version
from kip30.errors import StoreError
from kip30_backends.cassandra.client.library import Row
from kip30_backends.cassandra.partition_queue import PartitionQueues
from kip30_backends.cassandra.request import Answer, Ask, Calls

_NO_VERSION = Version(0)
MOST = 100
"""How many records are read at a time: they may have 256 KiB each."""


@dataclass(eq=False, slots=True)
class Job:
    """Names whose records are wanted; the answer is in their order."""

    names: Sequence[str]
    until: float
    answer: Future[list[Entry | None]] = field(default_factory=Future[list[Entry | None]])


class BatchedReads:
    """Reads records, partition by partition, and misses nothing decided. Thread-safe."""

    def __init__(self, calls: Calls) -> None:
        """Read with *calls*."""
        self._calls = calls
        self._lines: PartitionQueues[Job] = PartitionQueues(calls.pulse, _fitting, self._read)

    def add(self, namespace: str, names: Sequence[str]) -> Future[list[Entry | None]]:
        """Return the records of up to `MOST` *names*, in their order; None where there is none."""
        job = Job(names, self._calls.until())
        self._lines.join(namespace, job)
        return job.answer

    def _read(self, namespace: str, jobs: Sequence[Job], until: float) -> Future[Sequence[Job]]:
        names = sorted({name for job in jobs for name in job.names})
        statement = self._calls.statements.bind("read_records", self._calls.root, namespace, names)

        def tell(answer: Answer) -> Sequence[Job]:
            entries = entries_of(answer)
            for job in jobs:
                _answer(job, entries)
            return ()

        return self._calls.send(Ask(statement, tell), until)


def entries_of(answer: Answer) -> dict[str, Entry]:
    """Return the records among what was found, as `entry_of` does."""
    return {
        row["name"]: entry_of(row, "name", "records")
        for row in answer.rows
        if row["version"] is not None
    }


def entry_of(row: Row, column: str, table: str) -> Entry:
    """Return the record that a *row* of *table* has, named by *column*, or what `unreadable` does.

    Each write of kip30's sets all columns of a row.
    """
    nonce, data = row["nonce"], row["data"]
    if nonce and data is not None:
        return Entry(Version(row["version"]), nonce, data)
    return unreadable(f"{column} = {row[column]!r} in table {table}")


def unreadable(place: str) -> Entry:
    """Return what stands for a row at *place* that is no record: it has no nonce."""
    reason = f"the row where {place} is no record of this version of kip30: delete it"
    return Entry(_NO_VERSION, "", reason.encode())


def checked(entry: Entry | None) -> Entry | None:
    """Return *entry*.

    Raises:
        StoreError: It stands for a row that is no record.
    """
    if entry is not None and not entry.nonce:
        raise StoreError(entry.data.decode())
    return entry


def snapshot(order: int, found: Mapping[str, Entry]) -> Snapshot:
    """Return the state in which *found* was found, without what is unreadable of it."""
    bad = {name: entry.data.decode() for name, entry in found.items() if not entry.nonce}
    if not bad:
        return Snapshot(order, found)
    return Snapshot(order, {name: one for name, one in found.items() if name not in bad}, bad)


def _answer(job: Job, entries: Mapping[str, Entry]) -> None:
    """Answer *job* from *entries*; what is no record fails no other job."""
    try:
        found = [checked(entries.get(name)) for name in job.names]
    except StoreError as error:
        fail(job.answer, error)
    else:
        succeed(job.answer, found)


def _fitting(line: deque[Job]) -> list[Job]:
    jobs = [line.popleft()]
    size = len(jobs[0].names)
    while line and size + len(line[0].names) <= MOST:
        size += len(line[0].names)
        jobs.append(line.popleft())
    return jobs


_MOST = 100


@dataclass(eq=False, slots=True)
class SharedJob:
    """A partition that is to be read."""

    scope: str
    answer: Future[Answer] = field(default_factory=Future[Answer])


class SharedReads:
    """Reads what was acknowledged in partitions of one table. Thread-safe.

    While one request is under way the next ones gather. So few of them travel alone if there are
    many, and none waits if there are few.
    """

    def __init__(self, calls: Calls, one: str, many: str, column: str) -> None:
        """Ask by the statements *one* and *many*; of the latter *column* tells them apart."""
        self._calls = calls
        self._one = one
        self._many = many
        self._column = column
        self._waiting = list[SharedJob]()
        self._is_busy = False
        self._lock = threading.Lock()

    def read(self, scope: str) -> Future[Answer]:
        """Return the rows of the partition *scope*, whose turn comes as soon as others are done."""
        job = SharedJob(scope)
        with self._lock:
            self._waiting.append(job)
            is_first, self._is_busy = not self._is_busy, True
        if is_first:
            self._serve()
        return job.answer

    def _serve(self) -> None:
        while jobs := self._next():
            done = self._read(jobs)
            if not done.done():
                done.add_done_callback(lambda _: self._serve())
                return

    def _next(self) -> Sequence[SharedJob]:
        with self._lock:
            jobs, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            self._is_busy = bool(jobs)
        return jobs

    def _read(self, jobs: Sequence[SharedJob]) -> Future[None]:
        """Read *jobs* together; if that fails each alone, for it may be one that fails them all."""
        if len(jobs) == 1:
            return self._read_alone(jobs[0])

        def ended(done: Future[None]) -> Future[None]:
            return done if done.exception() is None else all_of([*map(self._read_alone, jobs)])

        return whatever(attempt(self._read_together, jobs), ended)

    def _read_together(self, jobs: Sequence[SharedJob]) -> Future[None]:
        scopes = sorted({job.scope for job in jobs})
        statement = self._calls.statements.poll(self._many, self._calls.root, scopes)
        return self._calls.send(Ask(statement, partial(self._tell, jobs)))

    def _tell(self, jobs: Sequence[SharedJob], answer: Answer) -> None:
        rows = defaultdict[str, list[Row]](list)
        for row in answer.rows:
            rows[row[self._column]].append(row)
        for job in jobs:
            succeed(job.answer, answer._replace(rows=rows[job.scope]))

    def _read_alone(self, job: SharedJob) -> Future[None]:
        def ended(done: Future[Answer]) -> Future[None]:
            copy(done, job.answer)
            return Completed(None)

        return whatever(attempt(self._ask, job.scope), ended)

    def _ask(self, scope: str) -> Future[Answer]:
        statement = self._calls.statements.poll(self._one, self._calls.root, scope)
        return self._calls.send(Ask(statement, _itself))


def _itself(answer: Answer) -> Answer:
    return answer
