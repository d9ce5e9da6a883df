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

from kip30.driver.kit.futures import Completed, all_of, attempt, copy, fail, failed, succeed
from kip30.driver.kit.operation import Steps, begun
from kip30.driver.kit.timer import Timer
from kip30.errors import Kip30Error, OutcomeUnknownError, UnavailableError


class QueuedRequest(Protocol):
    """A request in a queue, until it has its *answer* or its deadline passes."""

    answer: Future[Any]
    until: float


J = TypeVar("J", bound=QueuedRequest)


@dataclass(eq=False, slots=True)
class _Batch(Generic[J]):
    """Requests that are sent together."""

    place: Hashable
    requests: Sequence[J]
    has_ended: bool = False  # written under the lock of the queues


class PartitionQueues(Generic[J]):
    """A queue for each partition, which sends its first requests together. Thread-safe."""

    def __init__(
        self,
        timer: Timer,
        choose: Callable[[deque[J]], list[J]],
        do: Callable[[Any, Sequence[J], float], Future[Sequence[J]]],
        lost: type[Kip30Error] = OutcomeUnknownError,
    ) -> None:
        """Let *choose* take requests off the front of a queue, and *do* send them to their place.

        *do* receives the deadline; its future has the requests that must be retried. *timer* ends
        those whose deadline passes before their turn. Requests that an interrupt of a caller may
        have kept from being sent fail with *lost*.
        """
        self._lost = lost
        self._timer = timer
        self._choose = choose
        self._do = do
        # The queue of each place at which something is under way; a place without an entry is idle.
        # Written under the lock.
        self._queues: dict[Hashable, deque[J]] = {}
        self._lock = threading.Lock()

    def join(self, place: Hashable, request: J, *, behind: int | None = None) -> None:
        """Send *request* in its turn; if that comes too late, it fails and nothing was done.

        Its turn comes behind all that wait at *place*, or behind as many of them as given.
        """
        with self._lock:
            queue = self._queues.get(place)
            if queue is None:
                self._queues[place] = deque([request])
            elif behind is None:
                queue.append(request)
            else:
                queue.insert(behind, request)
        if queue is None:
            self._serve(place)
        else:
            self._end_in_time(place, request)

    def places(self) -> list[Hashable]:
        """Return the places at which something is under way."""
        with self._lock:
            return list(self._queues)

    def _end_in_time(self, place: Hashable, request: J) -> None:
        due = self._timer.after(
            request.until - time.monotonic(), partial(self._leave, place, request)
        )
        if due is not None:
            request.answer.add_done_callback(lambda _: due.cancel())

    def _leave(self, place: Hashable, request: J) -> None:
        """End *request*, unless its turn has come."""
        with self._lock:
            queue = self._queues.get(place)
            if queue is None or request not in queue:
                return
            queue.remove(request)
        fail(request.answer, _too_late())

    def _serve(self, place: Hashable) -> None:
        while requests := self._first(place):
            batch = _Batch(place, requests)
            try:
                done = attempt(self._do, place, requests, min(one.until for one in requests))
                if not done.done():
                    done.add_done_callback(partial(self._go_on, batch))
                    return
            except BaseException:  # an interrupt of the caller: otherwise no later one was served
                self._go_on(batch, failed(self._lost("interrupted while it was sent")))
                raise
            self._end(batch, done)

    def _go_on(self, batch: _Batch[J], done: Future[Sequence[J]]) -> None:
        if self._end(batch, done):
            self._serve(batch.place)

    def _first(self, place: Hashable) -> list[J]:
        """Return the requests whose turn it is, except late ones. End an empty queue."""
        while True:
            now = time.monotonic()
            with self._lock:
                queue = self._queues[place]
                if not queue:
                    del self._queues[place]
                    return []
                requests, others = _of_an_age(self._choose(queue), now)
                queue.extendleft(reversed(others))
            in_time = [request for request in requests if request.until > now]
            for request in requests:
                if request not in in_time:
                    fail(request.answer, _too_late())
            if in_time:
                return in_time

    def _end(self, batch: _Batch[J], done: Future[Sequence[J]]) -> bool:
        """End *batch* with its result; false if an interrupt has ended it before."""
        error = done.exception()
        with self._lock:
            if batch.has_ended:
                return False
            batch.has_ended = True
            if error is None:
                self._queues[batch.place].extendleft(reversed(done.result()))
        if error is not None:
            for request in batch.requests:
                fail(request.answer, error)
        return True


def _of_an_age(requests: list[J], now: float) -> tuple[list[J], list[J]]:
    """Return the requests to send together now, and the others.

    The earliest deadline applies to all of them. So a request with less than half the time of
    another one is sent before that.
    """
    half = max(request.until - now for request in requests) / 2
    hurried = [request for request in requests if request.until - now < half]
    if not hurried:
        return requests, []
    return hurried, [request for request in requests if request not in hurried]


def _too_late() -> UnavailableError:
    return UnavailableError("timed out in this client's queue: nothing was sent")


T = TypeVar("T")

Work = Callable[[float], Steps[T]]
"""The work of one turn; it is called with its deadline."""


@dataclass(eq=False, slots=True)
class _Turn:
    work: Work[Any]
    until: float
    answer: Future[Any] = field(default_factory=Future[Any])


class ClaimQueues:
    """Makes each piece of work wait for its turn. Thread-safe."""

    def __init__(self, timer: Timer) -> None:
        """Start with an empty queue; *timer* ends work whose deadline has passed."""
        self._queues: PartitionQueues[_Turn] = PartitionQueues(timer, _next, _taken)

    def take(
        self, place: Hashable, work: Work[T], until: float, *, behind: int | None = None
    ) -> Future[T]:
        """Return the result of *work*, run in its turn at *place*; all by *until*.

        Its turn comes behind all that wait there, or behind as many of them as given. Raises
        nothing: the errors of *work* are the future's.
        """
        turn = _Turn(work, until)
        self._queues.join(place, turn, behind=behind)
        return turn.answer

    def settled(self, until: float) -> Future[None]:
        """Return a future that is done once all queued work has ended, or at *until*."""
        return all_of([self.take(place, _nothing, until) for place in self._queues.places()])


def _nothing(_until: float) -> Steps[None]:
    yield Completed(None)


def _next(queue: deque[_Turn]) -> list[_Turn]:
    return [queue.popleft()]


def _taken(_place: object, turns: Sequence[_Turn], until: float) -> Future[Sequence[_Turn]]:
    (turn,) = turns
    return begun(_done(turn, until))


def _done(turn: _Turn, until: float) -> Steps[Sequence[_Turn]]:
    """Do the work of *turn*; none must be retried."""
    try:
        succeed(turn.answer, (yield from turn.work(until)))
    except Exception as error:  # noqa: BLE001  a future carries any error
        fail(turn.answer, error)
    return ()


_Job = tuple[Callable[[], Future[Any]], Future[Any]]


class ConcurrencyLimit:
    """Starts work in the order of its arrival, a limited amount at a time. Thread-safe."""

    def __init__(self, most: int) -> None:
        """Allow up to *most* pieces of work at a time."""
        # How many more may start now, and the work that waits. Written under the lock.
        self._free = most
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()

    def do(self, work: Callable[[], Future[T]]) -> Future[T]:
        """Return the result of *work*, which may have to wait."""
        answer: Future[T] = Future()
        with self._lock:
            self._waiting.append((work, answer))
        self._go_on()
        return answer

    def _go_on(self) -> None:
        while (request := self._next()) is not None:
            work, answer = request
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
