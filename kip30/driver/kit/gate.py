"""Refuses requests once a backend is closed, and in a forked child."""

import os

from kip30.errors import ClosedError, Kip30Error, LifecycleError

CLOSED = "the backend is closed"
FORKED = "opened before a fork: open another one in the child"


class Gate:
    """The check that each request passes before anything is sent. Thread-safe.

    Attributes:
        is_closed: Whether `close` was called. It never goes back.
    """

    def __init__(self) -> None:
        """Start open, in this process alone."""
        self.is_closed: bool = False
        # Of the process that opened the backend: a forked child has another one.
        self._pid = os.getpid()

    def refusal(self) -> Kip30Error | None:
        """Return why a request cannot be made here and now, or None if it can."""
        if os.getpid() != self._pid:
            return LifecycleError(FORKED)
        return ClosedError(CLOSED) if self.is_closed else None

    def check(self) -> None:
        """Raise unless requests can be made here and now.

        Raises:
            ClosedError: The backend is closed. Nothing was sent.
            LifecycleError: It belongs to the parent of this forked process. Nothing was sent.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """Let no further request pass. Idempotent."""
        self.is_closed = True
