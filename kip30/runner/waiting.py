"""Waits for a term or a share in short intervals, and checks for signals in between."""

import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from kip30.errors import OutcomeUnknownError, UnavailableError
from kip30.runner import exit_status
from kip30.runner.interrupts import Interrupts
from kip30.runner.job import WAITED_STATUS, Ending, RunOutcome

Say = Callable[[str], None]
"""Takes one line of progress."""

T = TypeVar("T")

_TURN_SECONDS = 0.1
_QUIET_SECONDS = 30.0
"""After which a complaint that comes again is said again: it is of another outage."""


class Poller(Generic[T]):
    """Asks for a term or a share until there is one; reports an outage of the store once."""

    def __init__(
        self,
        ask: Callable[[float], T | None],
        interrupts: Interrupts,
        say: Say,
        *,
        has_tried: Callable[[], bool],
    ) -> None:
        """Wait by *ask*, which takes how long it may wait, in seconds.

        A wait is not over before *has_tried*: before the store has answered one attempt, or has
        not within its operation timeout.
        """
        self._ask = ask
        self._has_tried = has_tried
        self._interrupts = interrupts
        self._say = say
        # The last complaint, and when it came last.
        self._complaint, self._complained_at = "", -math.inf

    def wait(
        self, wait_seconds: float | None, *, goes_on: Callable[[], bool] = lambda: True
    ) -> T | RunOutcome | None:
        """Return what was waited for, or how the run ends without it.

        Args:
            wait_seconds: How long to wait at most, but for one attempt; None is without limit.
            goes_on: Asked before each turn; when it is false, None is returned.
        """
        end = math.inf if wait_seconds is None else time.monotonic() + wait_seconds
        has_tried = False
        while goes_on():
            if self._interrupts.received:
                return interrupted(self._interrupts)
            left = max(0.0, end - time.monotonic())
            found = self.ask(min(_TURN_SECONDS, left) if has_tried else _TURN_SECONDS)
            if found is not None:
                return found
            has_tried = has_tried or self._has_tried()
            if not left and has_tried:
                return RunOutcome(Ending.WAITED, WAITED_STATUS)
        return None

    def ask(self, timeout: float = 0.0) -> T | None:
        """Return what there is within *timeout* seconds, None if nothing; an outage is said."""
        try:
            return self._ask(timeout)
        except (UnavailableError, OutcomeUnknownError) as error:
            self._complain(f"waiting for the store: {error}")
            self._interrupts.wait(timeout)
            return None

    def _complain(self, line: str) -> None:
        now = time.monotonic()
        if line != self._complaint or now > self._complained_at + _QUIET_SECONDS:
            self._say(line)
        self._complaint, self._complained_at = line, now


def interrupted(interrupts: Interrupts) -> RunOutcome:
    """Return the outcome of a run that a signal has ended while no command was running."""
    status = exit_status.signal_status(interrupts.received[0].number)
    return RunOutcome(Ending.INTERRUPTED, status)
