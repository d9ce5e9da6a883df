"""Base of the objects that are closed at the end of a ``with`` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """A context manager that calls its own `close` at the end."""

    @abstractmethod
    def close(self) -> None:
        """End it. Idempotent."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it, however the block ends."""
        self.close()
