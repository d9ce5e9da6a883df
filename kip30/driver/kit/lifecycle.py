"""What is closed: at the end of a ``with`` block, and once."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self


class Closing(ABC):
    """A context manager whose end is its own `close`."""

    @abstractmethod
    def close(self) -> None:
        """End it. Idempotent."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close it, however the block ends."""
        self.close()


class Ending:
    """An end that comes once; a second caller waits until it has come."""

    def __init__(self, is_awaited: Callable[[], bool]) -> None:
        """Be ahead; *is_awaited* says if the end waits for this thread, which then never waits."""
        self._is_awaited = is_awaited
        self._begun = threading.Lock()
        self._over = threading.Event()

    def once(self, end: Callable[[], None]) -> None:
        """Do *end*, unless it was begun; then return when that is over."""
        if self._begun.acquire(blocking=False):
            try:
                end()
            finally:
                self._over.set()
        elif not self._is_awaited():
            self._over.wait()

    def forgo(self) -> None:
        """In a forked child: be over without an end, which is the parent's."""
        # A thread that the child does not have may hold the event's own lock.
        self._begun, self._over = threading.Lock(), threading.Event()
        self._begun.acquire()
        self._over.set()


def on_thread_of(*names: str) -> Callable[[], bool]:
    """Return what says if the thread's name begins with one of *names*."""
    return lambda: threading.current_thread().name.startswith(names)
