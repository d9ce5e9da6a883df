"""Lines before partitions: writes on one partition wait for each other in the store as well.

A client that sends its own requests one after the other gets less in its own way there, and what
has gathered meanwhile can travel together.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kip30.errors import UnavailableError
from kip30.following import attempt, fail


class Job(Protocol):
    """What stands in a line, until its *answer* is there or its time is up."""

    answer: Future[Any]
    until: float


J = TypeVar("J", bound=Job)


class Lines(Generic[J]):
    """A line of jobs for each place, of which the first few are done at a time. Thread-safe."""

    def __init__(
        self,
        choose: Callable[[deque[J]], list[J]],
        do: Callable[[Any, Sequence[J], float], Future[Sequence[J]]],
    ) -> None:
        """Have *choose* take jobs off the front of a line, and *do* do them at their place.

        *do* is told how many seconds it has. Its future has those jobs that must be done again.
        """
        self._choose = choose
        self._do = do
        self._lines: dict[Hashable, deque[J]] = {}
        self._lock = threading.Lock()

    def join(self, place: Hashable, job: J) -> None:
        """Do *job* when its turn comes; if that is too late, it fails and nothing was done."""
        with self._lock:
            line = self._lines.get(place)
            if line is not None:
                line.append(job)
                return
            self._lines[place] = deque([job])
        self._serve(place)

    def _serve(self, place: Hashable) -> None:
        while jobs := self._first(place):
            seconds = min(job.until for job in jobs) - time.monotonic()
            done = attempt(self._do, place, jobs, seconds)
            if not done.done():
                done.add_done_callback(partial(self._go_on, place, jobs))
                return
            self._finish(place, jobs, done)

    def _go_on(self, place: Hashable, jobs: Sequence[J], done: Future[Sequence[J]]) -> None:
        self._finish(place, jobs, done)
        self._serve(place)

    def _first(self, place: Hashable) -> list[J]:
        """Return the jobs whose turn it is; of those that are too late none. End an empty line."""
        while True:
            with self._lock:
                line = self._lines[place]
                if not line:
                    del self._lines[place]
                    return []
                jobs = self._choose(line)
            in_time = [job for job in jobs if job.until > time.monotonic()]
            for job in jobs:
                if job not in in_time:
                    fail(job.answer, UnavailableError("its turn did not come in time"))
            if in_time:
                return in_time

    def _finish(self, place: Hashable, jobs: Sequence[J], done: Future[Sequence[J]]) -> None:
        error = done.exception()
        if error is None:
            with self._lock:
                self._lines[place].extendleft(reversed(done.result()))
            return
        for job in jobs:
            fail(job.answer, error)
