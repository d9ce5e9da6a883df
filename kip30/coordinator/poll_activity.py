"""Silence of a member's application, and the time at which the member leaves for it (K26)."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from kip30.driver.clock import Clock


class PollActivity:
    """Tracks whether the application polls, or is silent: it has not polled, or is in a callback.

    Time that `poll` spends on the store, or waits, is not silence. Thread-safe.

    Attributes:
        resumed: Called in the polling thread whenever a silence has ended.
    """

    def __init__(self, clock: Clock, patience_seconds: float) -> None:
        """Start in silence, which may last for *patience_seconds*."""
        self._clock = clock
        self._patience = patience_seconds
        self._lock = threading.Lock()
        self._silent_since: float | None = clock.now()
        # When a silence that has ended since became too long; None again when the member has left.
        self._overdue_at: float | None = None
        # Whether the member has left in the present silence: it has nothing to leave at its end.
        self._has_left = False
        # Written once, before the application first polls.
        self.resumed: Callable[[], object] = _nothing

    def leave_at(self) -> float:
        """Return when the member leaves unless the application polls before: it never stays longer.

        A silence that has lasted too long does not end by a poll: a caller that asked in between
        has received the answer that the share is not valid.
        """
        with self._lock:
            if self._overdue_at is not None:
                return self._overdue_at
            since = self._silent_since
            return (self._clock.now() if since is None else since) + self._patience

    def left(self) -> None:
        """Note that the member is not in the group: another silence begins, if there is one."""
        with self._lock:
            self._overdue_at = None
            if self._silent_since is not None:
                self._silent_since = self._clock.now()
                self._has_left = True

    def is_silent(self) -> bool:
        """Return whether the application does not poll now, or is in a callback."""
        with self._lock:
            return self._silent_since is not None

    @contextmanager
    def polling(self) -> Generator[None]:
        """Count the block as activity."""
        self._end_silence()
        try:
            yield
        finally:
            self._begin_silence()

    @contextmanager
    def callback(self) -> Generator[None]:
        """Count the block as silence, within `polling`."""
        self._begin_silence()
        try:
            yield
        finally:
            self._end_silence()

    def _begin_silence(self) -> None:
        with self._lock:
            self._silent_since = self._clock.now()
            self._has_left = False

    def _end_silence(self) -> None:
        with self._lock:
            if self._silent_since is None:
                return
            leave_at = self._silent_since + self._patience
            is_late = not self._has_left and self._clock.now() >= leave_at
            if is_late and self._overdue_at is None:
                self._overdue_at = leave_at
            self._silent_since = None
        self.resumed()


def _nothing() -> None:
    """Do nothing."""
