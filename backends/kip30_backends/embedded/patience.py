"""Waiting for a lock that others hold: jittered, and never longer than was agreed.

SQLite's own waiting backs off without jitter and lets a late comer starve.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from kip30.errors import UnavailableError
from kip30_backends.embedded.errors import is_busy

T = TypeVar("T")

_FIRST = 0.0002
# Short, because a process that writes one transaction after another leaves only short gaps, and
# one thread of a process asks at a time.
_LONGEST = 0.002


class Patience:
    """The time left for one operation."""

    def __init__(self, seconds: float) -> None:
        """Give up *seconds* from now."""
        self._end = time.monotonic() + seconds
        self._step = _FIRST

    def pause(self, complaint: str) -> None:
        """Wait a little.

        Raises:
            UnavailableError: The time is over; the message is *complaint*. Nothing was done.
        """
        if self.seconds_left() <= 0:
            raise UnavailableError(complaint)
        self._rest()

    def through(self, attempt: Callable[[], T]) -> T:
        """Return what *attempt* returns once no other connection is in its way.

        Raises:
            sqlite3.OperationalError: One was, the whole time. Nothing was done.
        """
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or self.seconds_left() <= 0:
                    raise
            self._rest()

    def seconds_left(self) -> float:
        """Return the time left; not above 0 once it is over."""
        return self._end - time.monotonic()

    def _rest(self) -> None:
        pause = self._step * (0.5 + random.random())  # noqa: S311  only jitter
        time.sleep(max(0.0, min(self.seconds_left(), pause)))
        self._step = min(_LONGEST, self._step * 1.5)
