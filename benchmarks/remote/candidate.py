"""A candidate for leadership."""

from abc import ABC, abstractmethod
from collections.abc import Callable

RAW_LEADER = "raw/service/handover/leader"

Elected = Callable[[], None]


class Candidate(ABC):
    """One of two for the same service; *elected* is called on some thread."""

    @abstractmethod
    def campaign(self) -> None:
        """Become the leader, or be ready to as soon as there is none."""

    @abstractmethod
    def resign(self) -> int:
        """Stop leading, and do not campaign; return the moment it began, in nanoseconds."""
