"""Reads of records, as they travel: all that wait for one partition together."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from kip30.futures import succeed
from kip30.records import Entry, Version
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.lines import Lines

MOST = 100
"""How many records are read at a time: they may have 256 KiB each."""


@dataclass(eq=False, slots=True)
class Job:
    """Names whose records are wanted; the answer is in their order."""

    names: Sequence[str]
    until: float
    answer: Future[list[Entry | None]] = field(default_factory=Future[list[Entry | None]])


class Readings:
    """Reads records, partition by partition, and misses nothing decided. Thread-safe."""

    def __init__(self, calls: Calls) -> None:
        """Read with *calls*."""
        self._calls = calls
        self._lines: Lines[Job] = Lines(calls.pulse, _fitting, self._read)

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
                succeed(job.answer, [entries.get(name) for name in job.names])
            return ()

        return self._calls.send(Ask(statement, tell), until)


def entries_of(answer: Answer) -> dict[str, Entry]:
    """Return the records among what was found."""
    return {row["name"]: entry_of(row) for row in answer.rows if row["version"] is not None}


def entry_of(row: Row) -> Entry:
    """Return the record that a row of records or members has."""
    return Entry(Version(row["version"]), row["nonce"] or "", row["data"] or b"")


def _fitting(line: deque[Job]) -> list[Job]:
    jobs = [line.popleft()]
    size = len(jobs[0].names)
    while line and size + len(line[0].names) <= MOST:
        size += len(line[0].names)
        jobs.append(line.popleft())
    return jobs
