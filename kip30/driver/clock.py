"""The one clock leases are judged by.

It counts time spent in suspend where the system can tell (Linux's CLOCK_BOOTTIME), because a store
keeps counting while a laptop sleeps. It never looks at the wall clock.

Operation timeouts, and pauses between retries of a request, are counted by `time.monotonic`
instead, which stands still in suspend: a request that was sent before it can still be answered. So
no lease is compared with a time of that clock.
"""

import threading
import time
from typing import Protocol
from weakref import WeakKeyDictionary

from typing_extensions import override


class Clock(Protocol):
    """Seconds since some fixed moment, never going back. Thread-safe."""

    def now(self) -> float:
        """Return the present moment in seconds."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait on *condition*, which the caller holds, until notified or after *timeout* seconds.

        May return early.
        """
        ...


_LONGEST_WAIT = 1.0
_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock(Clock):
    """The system's boot time, or its monotonic time where there is no such clock."""

    @override
    def now(self) -> float:
        return time.clock_gettime(_CLOCK_ID)

    @override
    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        # A condition's own timeout is paused in suspend, so long waits are split.
        condition.wait(None if timeout is None else min(timeout, _LONGEST_WAIT))


class ManualClock(Clock):
    """A clock that moves only on request, for tests of timing rules."""

    def __init__(self, start: float = 1000.0) -> None:
        """Begin at *start* seconds."""
        self._now = start
        self._lock = threading.Lock()
        # The conditions to notify when the time changes. Weakly: their owners may be gone by then.
        # As keys alone, so that they are notified in the order in which they came.
        self._waiting: WeakKeyDictionary[threading.Condition, None] = WeakKeyDictionary()

    @override
    def now(self) -> float:
        return self._now

    @override
    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        with self._lock:
            self._waiting[condition] = None
        condition.wait(0.05 if timeout is not None else None)

    def advance(self, seconds: float) -> None:
        """Advance by *seconds* and wake the threads that wait on this clock."""
        with self._lock:
            self._now += seconds
            waiting = list(self._waiting)
        # Without the lock: a thread that holds a condition may be about to take it, in `wait`.
        for condition in waiting:
            with condition:
                condition.notify_all()
