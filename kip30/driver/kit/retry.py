"""The time of a task's retry after a failure: growing backoff, with jitter."""

import math
import random

from kip30.driver.clock import Clock

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Retry:
    """The retries of one task. Used by that task alone.

    Attributes:
        due: When the next retry is due, in seconds on the clock; infinite if none was needed yet.
    """

    def __init__(self, clock: Clock) -> None:
        """Start without a failure."""
        self.due: float = math.inf
        self._clock = clock
        # The longest pause before the next retry, in seconds.
        self._pause = _FIRST_PAUSE

    def failed(self) -> bool:
        """Choose when the next retry is due, unless it is pending already; return whether this did.

        One retry is enough, however often other events wake the task meanwhile.
        """
        now = self._clock.now()
        if now < self.due < math.inf:
            return False
        self.due = now + self._pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        return True

    def succeeded(self) -> None:
        """Reset the backoff."""
        self._pause = _FIRST_PAUSE
