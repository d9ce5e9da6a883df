"""Stand-ins of the locks of `threading`, by which simulated threads wait for each other."""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from kip30_conformance.simulation.present import (
    clock,
    found,
    holder,
    running_thread,
    simulation,
)
from kip30_conformance.simulation.processes import SimulatedThread


class SimulatedLock:
    """A lock. Threads may be interrupted where they acquire it."""

    def __init__(self) -> None:
        """Start free."""
        self._owner: object = None
        self._waiters: deque[SimulatedThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """Acquire it; false if that is not possible in time."""
        present = found()
        if present is not None:
            present.give_way()
        if self._owner is None:
            self._owner = holder(present)
            return True
        return blocking and self._acquire_later(timeout)

    def _acquire_later(self, timeout: float) -> bool:
        """Wait for it."""
        present, me = simulation(), running_thread()
        until = None if timeout < 0 else clock() + timeout
        while self._owner is not None:
            left = None if until is None else until - clock()
            if left is not None and left <= 0:
                return False
            self._waiters.append(me)
            try:
                present.park(left)
            except BaseException:
                if not self._leave(me):
                    self._wake_next()  # which was this one's turn
                raise
            self._leave(me)
        self._owner = me
        return True

    def _leave(self, me: SimulatedThread) -> bool:
        """Return whether *me* was among the waiting, which it no longer is."""
        if me not in self._waiters:
            return False
        self._waiters.remove(me)
        return True

    def release(self) -> None:
        """Release it."""
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._owner = None
        if self._waiters:
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiters:
            simulation().unpark(self._waiters.popleft())

    def locked(self) -> bool:
        """Return whether it is held."""
        return self._owner is not None

    def __enter__(self) -> bool:
        """Acquire it."""
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        """Release it."""
        self.release()


class SimulatedRLock(SimulatedLock):
    """The same, which its owner may acquire again."""

    def __init__(self) -> None:
        """Start free."""
        super().__init__()
        self._count = 0

    @override
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._is_owned():
            self._count += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._count = 1
        return True

    @override
    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            super().release()

    def _is_owned(self) -> bool:
        return self._owner is not None and self._owner is holder(found())

    def release_all(self) -> int:
        """Release it whole, and return how often it was acquired."""
        count, self._count = self._count, 1
        self.release()
        return count

    def acquire_again(self, count: int) -> None:
        """Acquire it as often as `release_all` said."""
        self.acquire()
        self._count = count


_numbers = itertools.count(1)


class SimulatedCondition:
    """A condition over a lock of either kind.

    Attributes:
        number: Greater than that of every condition that was made before.
    """

    def __init__(self, lock: Any = None) -> None:
        """Use *lock*, or a new one."""
        self.number: int = next(_numbers)
        self._lock: Any = SimulatedRLock() if lock is None else lock
        self.acquire: Callable[..., bool] = self._lock.acquire
        self.release: Callable[[], None] = self._lock.release
        self._waiters: deque[SimulatedThread] = deque()

    def __enter__(self) -> bool:
        """Acquire it."""
        entered: bool = self._lock.__enter__()
        return entered

    def __exit__(self, *_error: object) -> None:
        """Release it."""
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; false if there was none in time."""
        present, me = simulation(), running_thread()
        self._waiters.append(me)
        count = (
            self._lock.release_all() if isinstance(self._lock, SimulatedRLock) else self._release()
        )
        was_notified = False
        try:
            was_notified = present.park(timeout)
        finally:
            if not was_notified and me in self._waiters:
                self._waiters.remove(me)
            if isinstance(self._lock, SimulatedRLock):
                self._lock.acquire_again(count)
            else:
                self._lock.acquire()
        return was_notified

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until *predicate* holds, and return what it returned last."""
        until = None if timeout is None else clock() + timeout
        while not (found := predicate()):
            left = None if until is None else until - clock()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        """Wake up to *n* threads."""
        if not self._lock.locked():
            raise RuntimeError("cannot notify on un-acquired lock")
        for _ in range(min(n, len(self._waiters))):
            simulation().unpark(self._waiters.popleft())

    def notify_all(self) -> None:
        """Wake all threads."""
        self.notify(len(self._waiters))

    def _release(self) -> int:
        self._lock.release()
        return 1


class SimulatedEvent:
    """An event."""

    def __init__(self) -> None:
        """Start cleared."""
        self._changed = SimulatedCondition(SimulatedLock())
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it."""
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Clear it."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; false if it is not in time."""
        with self._changed:
            self._changed.wait_for(self.is_set, timeout)
        return self._is_set


class SimulatedSemaphore:
    """A semaphore."""

    def __init__(self, value: int = 1) -> None:
        """Let *value* threads in."""
        self._value = value
        self._changed = SimulatedCondition()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:  # noqa: FBT001, FBT002
        """Acquire it once; false if that is not possible in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._value > 0, timeout if blocking else 0):
                return False
            self._value -= 1
            return True

    def release(self, n: int = 1) -> None:
        """Release it *n* times."""
        with self._changed:
            self._value += n
            self._changed.notify(n)

    def __enter__(self) -> bool:
        """Acquire it."""
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        """Release it."""
        self.release()


class SimulatedBoundedSemaphore(SimulatedSemaphore):
    """A semaphore that is never released more often than it was acquired."""

    def __init__(self, value: int = 1) -> None:
        """Let *value* threads in."""
        super().__init__(value)
        self._most = value

    @override
    def release(self, n: int = 1) -> None:
        with self._changed:
            if self._value + n > self._most:
                raise ValueError("Semaphore released too many times")
            super().release(n)


class SimulatedBarrier:
    """A barrier that is never broken."""

    def __init__(self, parties: int) -> None:
        """Wait for *parties* threads a round."""
        self._parties = parties
        self._arrived = 0
        self._changed = SimulatedCondition()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the others of this round."""
        with self._changed:
            me = self._arrived
            self._arrived += 1
            last = (me // self._parties + 1) * self._parties
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._arrived >= last, timeout):
                raise threading.BrokenBarrierError
            return me % self._parties
