"""Reads of many small partitions, as they travel: all that wait go in one request."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from kip30.driver.kit.following import all_of, attempt, copy, whatever
from kip30.driver.kit.futures import Completed, succeed
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.library import Row

_MOST = 100


@dataclass(eq=False, slots=True)
class Job:
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
        self._waiting = list[Job]()
        self._is_busy = False
        self._lock = threading.Lock()

    def read(self, scope: str) -> Future[Answer]:
        """Return the rows of the partition *scope*, whose turn comes as soon as others are done."""
        job = Job(scope)
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

    def _next(self) -> Sequence[Job]:
        with self._lock:
            jobs, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            self._is_busy = bool(jobs)
        return jobs

    def _read(self, jobs: Sequence[Job]) -> Future[None]:
        """Read *jobs* together; if that fails each alone, for it may be one that fails them all."""
        if len(jobs) == 1:
            return self._read_alone(jobs[0])

        def ended(done: Future[None]) -> Future[None]:
            return done if done.exception() is None else all_of([*map(self._read_alone, jobs)])

        return whatever(attempt(self._read_together, jobs), ended)

    def _read_together(self, jobs: Sequence[Job]) -> Future[None]:
        scopes = sorted({job.scope for job in jobs})
        statement = self._calls.statements.poll(self._many, self._calls.root, scopes)
        return self._calls.send(Ask(statement, partial(self._tell, jobs)))

    def _tell(self, jobs: Sequence[Job], answer: Answer) -> None:
        rows = defaultdict[str, list[Row]](list)
        for row in answer.rows:
            rows[row[self._column]].append(row)
        for job in jobs:
            succeed(job.answer, answer._replace(rows=rows[job.scope]))

    def _read_alone(self, job: Job) -> Future[None]:
        def ended(done: Future[Answer]) -> Future[None]:
            copy(done, job.answer)
            return Completed(None)

        return whatever(attempt(self._ask, job.scope), ended)

    def _ask(self, scope: str) -> Future[Answer]:
        statement = self._calls.statements.poll(self._one, self._calls.root, scope)
        return self._calls.send(Ask(statement, _itself))


def _itself(answer: Answer) -> Answer:
    return answer
