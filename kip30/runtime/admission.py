"""The places of tasks that wait for the store, and how tasks get them."""

import math
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Admission(Generic[T]):
    """Lets a number of tasks run at once. Not thread-safe: its owner has a lock.

    Tasks are of two kinds, the library's own work and calls of users. Each kind queues first come,
    first served, and the two take turns: thousands of one kind do not delay the other. Some places
    are not for calls, because a call may wait for the library's own work.

    Attributes:
        running: How many have a place.
    """

    def __init__(self, most: int, *, reserved: int = 1) -> None:
        """Admit up to *most* tasks, and fewer calls by the number *reserved*."""
        self.running: int = 0
        self._reserved = reserved
        self._most = most
        self._most_stalled = most
        self._stall_seconds = math.inf
        self._calls = 0  # how many calls have a place
        self._own_queue: deque[T] = deque()
        self._call_queue: deque[T] = deque()
        self._is_turn_of_calls = False
        # How many tasks have ended, how many had at the last change, and when that was seen.
        self._ended = 0
        self._seen = -1
        self._since = -math.inf

    def limit(self, most: int, stall_seconds: float) -> None:
        """Admit *most* from now on; if none ends for *stall_seconds*, one more, up to twice *most*.

        So tasks that the store does not answer delay the others for no longer than that.
        """
        self._most, self._most_stalled = most, 2 * most
        self._stall_seconds = stall_seconds

    def admit(self, task: T, *, is_call: bool) -> bool:
        """Give *task* a place, or queue it and return false."""
        (self._call_queue if is_call else self._own_queue).append(task)
        # Only itself: others would have been admitted before, if there was a place for them.
        return self._admitted(self._most) is not None

    def ended(self, *, is_call: bool) -> T | None:
        """Free the place of a task; return the queued task that gets it, if there is one."""
        self.running -= 1
        self._calls -= is_call
        self._ended += 1
        return self._admitted(self._most)

    def relief(self, now: float) -> T | None:
        """Return a task that gets a place at *now*, because none has ended for too long."""
        if self.stalls_at(now) > now:
            return None
        self._since = now
        return self._admitted(self._most_stalled)

    def stalls_at(self, now: float) -> float:
        """Return when too long will have passed unless a task ends; infinite if none queues."""
        if not self.queued():
            self._seen = -1
            return math.inf
        if self._ended != self._seen:
            self._seen, self._since = self._ended, now
        return self._since + self._stall_seconds

    def queued(self) -> bool:
        """Return whether a task waits for a place."""
        return bool(self._own_queue or self._call_queue)

    def clear(self) -> None:
        """Forget the queued tasks."""
        self._own_queue.clear()
        self._call_queue.clear()

    def _admitted(self, most: int) -> T | None:
        is_free = self.running < most
        may_call = is_free and bool(self._call_queue) and self._calls < most - self._reserved
        # Also if calls have all places, some of them since a relief: they may all wait for it.
        has_reserved = self.running - self._calls < self._reserved
        may_own = (is_free or has_reserved) and bool(self._own_queue)
        if not (may_call or may_own):
            return None
        is_call = may_call and (self._is_turn_of_calls or not may_own)
        self._is_turn_of_calls = not is_call
        self.running += 1
        self._calls += is_call
        return (self._call_queue if is_call else self._own_queue).popleft()
