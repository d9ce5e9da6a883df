"""The places of tasks that wait for the store, and how tasks get them."""

import math
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class _Ends:
    """The number of tasks of one kind that have ended, and when a change of it was seen.

    Attributes:
        number: How many have ended.
    """

    def __init__(self) -> None:
        self.number = 0
        self._seen = -1
        self._since = -math.inf

    def last(self, now: float, *, matters: bool) -> float:
        """Return when the last one was seen, at *now* if it is new; infinite if none *matters*."""
        if not matters:
            self._seen = -1
            return math.inf
        if self.number != self._seen:
            self._seen, self._since = self.number, now
        return self._since

    def begin_again(self, now: float) -> None:
        """Let the last one have been at *now*."""
        self._since = now


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
        # Those of each kind, because one that ends does not show that the other does.
        self._own_ends = _Ends()
        self._call_ends = _Ends()

    def limit(self, most: int, stall_seconds: float) -> None:
        """Admit *most* from now on, and one more, up to twice *most*, in a stall.

        That is when tasks of a kind queue and none of that kind ends for *stall_seconds*. So tasks
        that the store does not answer delay the others for no longer than that.
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
        (self._call_ends if is_call else self._own_ends).number += 1
        return self._admitted(self._most)

    def relief(self, now: float) -> T | None:
        """Return a task that gets a place at *now*, because none has ended for too long."""
        late = [ends for ends, at in self._stalls(now) if at <= now]
        for ends in late:
            ends.begin_again(now)
        if not late:
            return None
        return self._admitted(
            self._most_stalled, own=self._own_ends in late, calls=self._call_ends in late
        )

    def stalls_at(self, now: float) -> float:
        """Return when too long will have passed unless a task ends; infinite if none queues."""
        return min(at for _, at in self._stalls(now))

    def _stalls(self, now: float) -> list[tuple[_Ends, float]]:
        kinds = (self._own_ends, self._own_queue), (self._call_ends, self._call_queue)
        return [
            (ends, ends.last(now, matters=bool(queue)) + self._stall_seconds)
            for ends, queue in kinds
        ]

    def queued(self) -> bool:
        """Return whether a task waits for a place."""
        return bool(self._own_queue or self._call_queue)

    def clear(self) -> None:
        """Forget the queued tasks."""
        self._own_queue.clear()
        self._call_queue.clear()

    def _admitted(self, most: int, *, own: bool = True, calls: bool = True) -> T | None:
        """Admit the next task if it has a place among *most*: of the *own* ones or the *calls*."""
        is_free = self.running < most
        is_free_for_calls = is_free and self._calls < most - self._reserved
        may_call = calls and is_free_for_calls and bool(self._call_queue)
        # Also if calls have all places, some of them since a relief: they may all wait for it.
        has_reserved = self.running - self._calls < self._reserved
        may_own = own and (is_free or has_reserved) and bool(self._own_queue)
        if not (may_call or may_own):
            return None
        is_call = may_call and (self._is_turn_of_calls or not may_own)
        self._is_turn_of_calls = not is_call
        self.running += 1
        self._calls += is_call
        return (self._call_queue if is_call else self._own_queue).popleft()
