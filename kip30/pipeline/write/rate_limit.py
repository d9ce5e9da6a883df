"""A limit of writes per second: a token bucket, small enough that no second has much more."""

import math
import threading

from kip30.driver.clock import Clock
from kip30.errors import UsageError

_BURST_SECONDS = 0.05
_LEAST_SHARE = 1 / _BURST_SECONDS
"""Of fewer writes a second, the one that a task may always do at once is more than a burst."""

_ROUNDING = 1e-6
"""Of a write: without it the last wait of several could be too short for any clock to see."""


def sharers(rate: float, slots: int) -> int:
    """Return how many tasks at a time, up to *slots*, may share *rate* writes a second.

    With this number of tasks, and a `RateLimit` of its part for each, no second has more than 1.05
    times the rate, rounded up: also if all begin at once, and if others take their place.
    """
    return max(1, min(slots, int(rate / _LEAST_SHARE)))


class RateLimit:
    """Grants a given number of writes a second. One thread uses it at a time.

    After a pause there is no more than a twentieth of a second's share at once, or one write: no
    second has more than 1.05 times the rate, rounded up. In the beginning there is nothing, so that
    tasks which follow one another get no more than one that keeps running.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        """Grant *rate* writes a second by *clock*.

        Raises:
            UsageError: *rate* is no number greater than 0.
        """
        if not 0 < rate < math.inf:
            raise UsageError(f"a rate of {rate} writes/s is not possible: give more than 0")
        self._rate = rate
        self._clock = clock
        self._most = max(1.0, rate * _BURST_SECONDS)
        self._tokens = 0.0
        self._at = clock.now()
        self._waiting = threading.Condition()

    def take(self, wanted: int) -> int:
        """Wait until several writes are granted; return how many may be sent, up to *wanted*.

        It waits for a whole burst: requests of one write each would cost the store more.
        """
        granted = min(wanted, int(self._most))
        while (missing := granted - self._refilled()) > _ROUNDING:
            with self._waiting:
                self._clock.wait(self._waiting, missing / self._rate)
        self._tokens -= granted
        return granted

    def _refilled(self) -> float:
        now = self._clock.now()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens
