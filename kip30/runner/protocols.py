"""What a runner needs of an election: an object that contests a service for it.

`kip30.election` is adapted to this in the command line; the runner itself knows no store.
"""

import threading
from typing import Protocol


class Term(Protocol):
    """One leadership, from its gain to its end. Thread-safe."""

    @property
    def epoch(self) -> int:
        """The fencing token: greater in every later term of the service."""
        ...

    @property
    def deadline(self) -> float:
        """When it ends unless renewed, by `kip30.driver.clock.SystemClock`, in seconds."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """How long the store keeps the lease without renewal."""
        ...

    @property
    def lost(self) -> threading.Event:
        """Set once the term is known to be over, even before its deadline."""
        ...

    def is_valid(self) -> bool:
        """Say whether no other candidate can have been elected yet."""
        ...


class Contest(Protocol):
    """A candidate for one service."""

    def wait(self, timeout: float) -> Term | None:
        """Be a candidate, again after `resign`, and wait for a term.

        It is called over and over in short turns and returns as soon as there is a term.

        Args:
            timeout: How long to wait in this turn, in seconds.

        Returns:
            The term, or None if there is none yet.

        Raises:
            UnavailableError: The store cannot be reached. The runner says so and asks again.
            OutcomeUnknownError: The same.
        """
        ...

    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the present term while it is open.

        It stays the contest's own: the runner hands a duplicate to the guard and closes
        nothing. None if a lease ends with its timeout only, or is over.
        """
        ...

    def resign(self) -> None:
        """Give up term and candidacy, so that another can be elected at once. Idempotent."""
        ...
