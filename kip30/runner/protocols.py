"""Interface of a runner to an election: an object that contests a service for it.

`kip30.election` is adapted to this in the command line; the runner itself knows no store.
`kip30.runner.share_protocols` has the same for a group that divides work.
"""

import threading
from collections.abc import Callable
from typing import Protocol


class UnderLease(Protocol):
    """A term or share that a command is run for, held as long as a lease. Thread-safe."""

    @property
    def deadline(self) -> float:
        """The moment it ends unless renewed, in seconds of `kip30.driver.clock.SystemClock`."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """The time that the store keeps the lease without renewal."""
        ...

    @property
    def lost(self) -> threading.Event:
        """Set once it is known to have ended, even before its deadline."""
        ...

    def is_valid(self) -> bool:
        """Return whether no other process can hold it yet."""
        ...


class Term(UnderLease, Protocol):
    """One leadership, from its gain to its end. Thread-safe."""

    @property
    def epoch(self) -> int:
        """The fencing token: greater in every later term of the service."""
        ...

    @property
    def ending_reason(self) -> str:
        """Reason why it has ended, or will end if it is not renewed."""
        ...

    @property
    def step_down_requested(self) -> threading.Event:
        """Set once an operator has ended it; it is valid until it is resigned."""
        ...


class Contest(Protocol):
    """A candidate for one service."""

    def wait(self, timeout: float) -> Term | None:
        """Become a candidate, again after `resign`, and wait for a term.

        It is called repeatedly, with a short timeout, and returns as soon as there is a term.

        Args:
            timeout: How long to wait in this call, in seconds.

        Returns:
            The term, or None if there is none yet.

        Raises:
            UnavailableError: The store cannot be reached. The runner reports that and retries.
            OutcomeUnknownError: The same.
        """
        ...

    def has_tried(self) -> bool:
        """Return whether an attempt to lead has ended, or has lasted for the operation timeout.

        Since the start, or since the last `resign`.
        """
        ...

    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the present term while it is open.

        It stays the contest's own: the runner hands a duplicate to the guard and closes
        nothing. None if a lease ends with its timeout only, or has ended.
        """
        ...

    def resign(self) -> None:
        """Give up term and candidacy, so that another can be elected at once. Idempotent."""
        ...

    def finished(self) -> str:
        """Return why nothing is left to run, or an empty text. Does not wait."""
        return ""

    def note_success(self, goes_on: Callable[[], bool]) -> None:
        """Note that the command of the present term has ended with status 0, and at no signal.

        Args:
            goes_on: Asked before a store that does not answer is tried again.

        Raises:
            Kip30Error: It is not noted, or perhaps not.
        """
        del goes_on  # most contests note nothing
