"""Waking threads that wait, also from a signal's handler."""

import os
import select
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Wakeup:
    """A flag that threads can wait for. It has no lock, so a signal's handler may set it."""

    def __init__(self) -> None:
        """Start unset."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._is_set = False

    def __del__(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)

    @property
    def is_set(self) -> bool:
        """True if it was set, and not cleared since."""
        return self._is_set

    def set(self) -> None:
        """Wake the threads that wait, now or later."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writer, b"\0")

    def clear(self) -> None:
        """Unset it. Only the one thread that waits for it may do that."""
        # In this order, or a byte that `set` writes meanwhile is taken, and it counts as set: then
        # no later `set` wakes. The caller has yet to look for what one of now announces.
        while _taken(self._reader):
            pass
        self._is_set = False

    def wait(self, seconds: float, *others: "Wakeup") -> None:
        """Wait until it or one of *others* is set, but not for more than *seconds*."""
        poll = select.poll()
        for one in (self, *others):
            poll.register(one._reader, select.POLLIN)  # noqa: SLF001  of the same class
        poll.poll(max(0.0, seconds) * 1000)


@contextmanager
def set_by_interrupt(stop: Wakeup) -> Generator[None]:
    """Let Ctrl-C set *stop*, and raise when the block has ended; the second one raises at once.

    Only the main thread receives signals; in others this does nothing.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        stop.set()
        if interrupts > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def _taken(reader: int) -> bytes:
    try:
        return os.read(reader, 64)
    except BlockingIOError:
        return b""
