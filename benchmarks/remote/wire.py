"""Hearing of a key's new values, and writing them."""

from abc import ABC, abstractmethod
from collections.abc import Callable

RAW_KEY = "raw/kv/bench/watched"

Heard = Callable[[str], None]


class Wire(ABC):
    """A connection by which one process writes a key, and another hears of it."""

    @abstractmethod
    def create(self) -> None:
        """Create the key."""

    @abstractmethod
    def write(self, value: str) -> None:
        """Give it another value."""

    @abstractmethod
    def listen(self, heard: Heard) -> None:
        """Call *heard* with each value from now on, on some thread."""
