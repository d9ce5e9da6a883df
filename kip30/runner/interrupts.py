"""The signals that tell a runner to end, caught and kept for it."""

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object] | int | None
"""What `signal.signal` takes and returns."""

_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupts:
    """Catches SIGTERM, SIGINT and SIGHUP in a with-block. Main thread only.

    A signal that is ignored at the start stays ignored, as `nohup` wants it.

    Attributes:
        received: The numbers of the signals caught so far, in order.
    """

    def __init__(self) -> None:
        """Catch nothing yet."""
        self.received: list[int] = []
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Self:
        """Begin to catch."""
        for number in _CAUGHT:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *_error: object) -> None:
        """Leave the signals as they were."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._wake)

    def fileno(self) -> int:
        """Return a descriptor that is readable once a signal was received."""
        return self._wake

    def acknowledge(self) -> None:
        """Make it unreadable until the next signal."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def wait(self, timeout: float) -> None:
        """Wait for a signal, for *timeout* seconds at most."""
        select.select([self._wake], [], [], timeout)

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        os.eventfd_write(self._wake, 1)
