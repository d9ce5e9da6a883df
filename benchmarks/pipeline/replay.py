"""The requests of a scan, noted once, so that a bare client can send the same ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch


class RawScan(ABC):
    """A store's bare client, and the requests that it repeats."""

    @abstractmethod
    @contextmanager
    def recording(self) -> Generator[None]:
        """Note the requests that kip30 sends in the block."""

    @abstractmethod
    def read(self) -> int:
        """Send the requests again, take the fields of each row, and return how many rows came.

        A row's fields are those of `kip30.scanning.Row`, as the client returns them: nothing is
        unsealed, unescaped or checked.
        """

    @abstractmethod
    def close(self) -> None: ...


@contextmanager
def noting(owner: Any, method: str, note: Callable[..., None]) -> Generator[None]:
    """Call *note* with the arguments of each call of *method* of the class *owner*."""
    original = getattr(owner, method)

    @wraps(original)
    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        note(*arguments, **named)
        return original(self, *arguments, **named)

    with patch.object(owner, method, noted):
        yield
