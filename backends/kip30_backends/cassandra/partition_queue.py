"""Queues before partitions, and limits of how much is done at a time.

Writes on one partition wait for each other in the store as well. A client that sends its own
requests one after the other conflicts less with itself, and requests that have queued meanwhile
travel together. Limits let urgent requests through between many others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kip30.driver.kit.following import all_of, attempt, copy, whatever
from kip30.driver.kit.futures import Completed, fail
from kip30.driver.kit.timer import Timer
from kip30.errors import UnavailableError


class Job(Protocol):
    """What stands in a line, until its *answer* is there or its time is up."""

    answer: Future[Any]
    until: float


J = TypeVar("J", bound=Job)


class PartitionQueues(Generic[J]):
    """A line of jobs for each place, of which the first few are done at a time. Thread-safe."""

    def __init__(
        self,
        pulse: Timer,
        choose: Callable[[deque[J]], list[J]],
        do: Callable[[Any, Sequence[J], float], Future[Sequence[J]]],
    ) -> None:
        """Have *choose* take jobs off the front of a line, and *do* do them at their place.

        *do* receives the deadline; its future has the jobs that must be done again. *pulse* ends
        those whose time is up before their turn.
        """
        self._pulse = pulse
        self._choose = choose
        self._do = do
        # What waits before each place at which something is under way; a place without an entry
        # is idle. Written under the lock.
        self._lines: dict[Hashable, deque[J]] = {}
        self._lock = threading.Lock()

    def join(self, place: Hashable, job: J) -> None:
        """Do *job* when its turn comes; if that is too late, it fails and nothing was done."""
        with self._lock:
            line = self._lines.get(place)
            if line is None:
                self._lines[place] = deque([job])
            else:
                line.append(job)
        if line is None:
            self._serve(place)
        else:
            self._end_in_time(place, job)

    def places(self) -> list[Hashable]:
        """Return where something is under way."""
        with self._lock:
            return list(self._lines)

    def _end_in_time(self, place: Hashable, job: J) -> None:
        due = self._pulse.after(job.until - time.monotonic(), partial(self._leave, place, job))
        if due is not None:
            job.answer.add_done_callback(lambda _: due.cancel())

    def _leave(self, place: Hashable, job: J) -> None:
        """End *job*, unless its turn has come."""
        with self._lock:
            line = self._lines.get(place)
            if line is None or job not in line:
                return
            line.remove(job)
        fail(job.answer, _too_late())

    def _serve(self, place: Hashable) -> None:
        while jobs := self._first(place):
            done = attempt(self._do, place, jobs, min(job.until for job in jobs))
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
            now = time.monotonic()
            with self._lock:
                line = self._lines[place]
                if not line:
                    del self._lines[place]
                    return []
                jobs, others = _of_an_age(self._choose(line), now)
                line.extendleft(reversed(others))
            in_time = [job for job in jobs if job.until > now]
            for job in jobs:
                if job not in in_time:
                    fail(job.answer, _too_late())
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


def _of_an_age(jobs: list[J], now: float) -> tuple[list[J], list[J]]:
    """Return those that are done together now, and the others.

    All are done in the time of the one that has the least. So who has less than half the time of
    another one goes ahead of that.
    """
    half = max(job.until - now for job in jobs) / 2
    hurried = [job for job in jobs if job.until - now < half]
    return (hurried, [job for job in jobs if job not in hurried]) if hurried else (jobs, [])


def _too_late() -> UnavailableError:
    return UnavailableError("its turn did not come in time")


T = TypeVar("T")

Work = Callable[[float], Future[T]]
"""What is done in a turn, by the moment that it is told."""


@dataclass(eq=False, slots=True)
class _Turn:
    work: Work[Any]
    until: float
    answer: Future[Any] = field(default_factory=Future[Any])


class ClaimQueues:
    """Has every piece of work wait for its turn. Thread-safe."""

    def __init__(self, pulse: Timer) -> None:
        """Begin with an empty queue; *pulse* ends what is too late."""
        self._lines: PartitionQueues[_Turn] = PartitionQueues(pulse, _next, _taken)

    def take(self, place: Hashable, work: Work[T], until: float) -> Future[T]:
        """Return what becomes of *work* when its turn at *place* comes; all by *until*.

        Raises nothing: what *work* raises is the future's.
        """
        turn = _Turn(work, until)
        self._lines.join(place, turn)
        return turn.answer

    def settled(self, until: float) -> Future[None]:
        """Return what is done once all that waits now has ended, or at *until*."""
        return all_of([self.take(place, _nothing, until) for place in self._lines.places()])


def _nothing(_until: float) -> Future[None]:
    return Completed(None)


def _next(line: deque[_Turn]) -> list[_Turn]:
    return [line.popleft()]


def _taken(_place: object, turns: Sequence[_Turn], until: float) -> Future[Sequence[_Turn]]:
    (turn,) = turns

    def ended(done: Future[Any]) -> Future[Sequence[_Turn]]:
        copy(done, turn.answer)
        return Completed(())

    return whatever(turn.work(until), ended)


_Job = tuple[Callable[[], Future[Any]], Future[Any]]


class ConcurrencyLimit:
    """Begins work in the order in which it came, so much at a time. Thread-safe."""

    def __init__(self, most: int) -> None:
        """Have up to *most* pieces of work under way."""
        # How many more may begin now, and what waits for that. Written under the lock.
        self._free = most
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()

    def do(self, work: Callable[[], Future[T]]) -> Future[T]:
        """Return what becomes of *work*, which may have to wait."""
        answer: Future[T] = Future()
        with self._lock:
            self._waiting.append((work, answer))
        self._go_on()
        return answer

    def _go_on(self) -> None:
        while (job := self._next()) is not None:
            work, answer = job
            done = attempt(work)
            if done.done():
                self._finish(answer, done)
            else:
                done.add_done_callback(partial(self._finish_and_go_on, answer))

    def _next(self) -> _Job | None:
        with self._lock:
            if not self._free or not self._waiting:
                return None
            self._free -= 1
            return self._waiting.popleft()

    def _finish(self, answer: Future[Any], done: Future[Any]) -> None:
        with self._lock:
            self._free += 1
        copy(done, answer)

    def _finish_and_go_on(self, answer: Future[Any], done: Future[Any]) -> None:
        self._finish(answer, done)
        self._go_on()
