"""Closing on a signal: a process that must end first leaves its groups and resigns.

By default SIGTERM ends a Python process without running any of its code. Its leaderships and
memberships then last until the session timeout. Three lines end them at once:

    >>> with PluginLocator().startup() as locator, close_on_signals(locator):
    ...     with locator.leader_election("reports").lead("host-1", "") as leadership:
    ...         work()

Under asyncio let the loop handle the signal, and leave the block of the locator:

    >>> async def main() -> None:
    ...     asked = asyncio.Event()
    ...     asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    ...     async with AsyncPluginLocator() as locator:
    ...         await locator.leader_election("reports").nominate("host-1", "")
    ...         await asked.wait()
"""

import logging
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from types import FrameType

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.driver.kit.thread_start import started
from kip30.errors import UnavailableError, UsageError

log: logging.Logger = logging.getLogger(__name__)

_Handler = Callable[[int, FrameType | None], object] | int | None
_REPEAT_SECONDS = 0.02
_SPIN_SECONDS = 0.001
_WAKE = 0
"""A number in the mailbox that is no signal."""
_NO_DESCRIPTOR = -1
_CREDENTIALS = struct.Struct("3i")


def close_on_signals(
    *locators: Closeable, signals: Sequence[int] = (signal.SIGTERM, signal.SIGHUP)
) -> AbstractContextManager[None]:
    """Return a context in which a signal closes *locators* before it takes its usual effect.

    On the first of *signals* a thread closes the locators, one after the other, each by its
    operation timeout; calls in other threads end with `ClosedError` meanwhile. Then the handler
    that was there before gets the signal; without one the process ends by the signal, so that its
    exit status is that of the signal. Further signals are ignored until then. The same happens if
    the block ends before the locators are closed.

    A signal that is ignored, as SIGHUP under `nohup`, stays ignored. A forked child does not close
    what it inherited: its signals have the effect they had before. Where the main thread does not
    run Python code, as in a long call of a C library, the locators are closed, but the process ends
    only when that call does. Linux only.

    Args:
        *locators: What to close: locators, or handles of theirs.
        signals: The numbers of the signals.

    Raises:
        UsageError: On entering, by another thread than the main one. Nothing was changed.
        UnavailableError: On entering: the system has no thread to spare. Nothing was changed.
    """
    return _ClosingOnSignals(locators, signals)


class _ClosingOnSignals(AbstractContextManager[None]):
    """One use of `close_on_signals`.

    The handler runs in the main thread, between any two instructions of it: the locks of this
    library may be held by the very code it interrupts. So it takes no lock and closes nothing.

        waiting --signal--> closing --closed--> repeating --the handler notices--> over
    """

    def __init__(self, locators: Sequence[Closeable], signals: Sequence[int]) -> None:
        self._locators = locators
        self._signals = signals
        self._before: dict[int, _Handler] = {}
        self._thread = threading.Thread(target=self._run, name="kip30-signals", daemon=True)
        # The first signal that the handler got, and whether the block ends. The main thread writes
        # them before it writes to the mailbox, where a number is dropped if there is no space: then
        # the thread has numbers to read, and looks at both after each.
        self._asked: int | None = None
        self._is_ending = False
        # The first signal, set by the thread before it closes anything.
        self._number: int | None = None
        # Set by the thread: everything is closed; it sends nothing further to the main thread.
        self._is_closed = False
        self._has_ended = False
        # Written by the main thread only: the handler noticed the close, or the block ended.
        self._is_over = False

    @override
    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("close_on_signals is for the main thread, which handles all signals")
        self._mailbox = _Mailbox()
        if not started(self._thread):
            self._mailbox.close()
            raise UnavailableError("no thread to spare: no signal is handled")
        for number in self._signals:
            before = signal.getsignal(number)
            # None is a handler that was not set by Python, and that Python could not restore.
            if before is not None and before != signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._handle)

    @override
    def __exit__(self, *_error: object) -> None:
        if self._mailbox.is_foreign():
            self._restore()
            self._mailbox.close()
        else:
            self._end()

    def _end(self) -> None:
        was_delivered = self._is_over
        self._is_over = self._is_ending = True
        self._mailbox.put(_WAKE)
        self._thread.join()
        self._restore()
        # A signal may have come between the end of the thread and now.
        number = self._number or self._next_signal()
        self._mailbox.close()
        if number is not None and not was_delivered:
            self._close_all()
            self._deliver(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._mailbox.is_foreign():
            self._restore()
            self._deliver(number, frame)
        elif not self._is_closed:
            self._asked = self._asked or number
            self._mailbox.put(number)
        elif not self._is_over and self._number is not None:
            self._finish(self._number, frame)

    def _finish(self, number: int, frame: FrameType | None) -> None:
        self._is_over = True
        # No repetition may reach the former handler. The sleep lets a pending one arrive here.
        while not self._has_ended:
            time.sleep(_SPIN_SECONDS)
        self._restore()
        self._deliver(number, frame)

    def _restore(self) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)

    def _deliver(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:
            os.kill(os.getpid(), number)

    def _run(self) -> None:
        self._number = self._next_signal()
        if self._number is not None:
            self._close_all()
            self._is_closed = True
            self._repeat(self._number)
        self._has_ended = True

    def _next_signal(self) -> int | None:
        """Return the first signal, None if the block ends without one."""
        while self._asked is None:
            number = self._mailbox.get(wait=not self._is_ending)
            if number is None:
                return None
            if number in self._before:
                return number
        return self._asked

    def _repeat(self, number: int) -> None:
        """Send the signal to the main thread until the handler notices the close."""
        main = threading.main_thread().ident
        while main is not None and not self._is_over:
            signal.pthread_kill(main, number)
            time.sleep(_REPEAT_SECONDS)

    def _close_all(self) -> None:
        for locator in self._locators:
            try:
                locator.close()
            except Exception:
                log.exception("not closed at a signal")


class _Mailbox:
    """Numbers for the thread, put by signal handlers: Python's one and, sooner, the system's.

    Python's handler does not run while the main thread waits in a call that began right after the
    signal came. What the interpreter writes at the signal itself is not late. A forked child has
    the same socket; so each number counts only if this process sent it.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._inner, self._outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._outer.settimeout(0)
        self._inner.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        former = signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)
        if former != _NO_DESCRIPTOR:  # An event loop needs its own; Python's handler is left.
            signal.set_wakeup_fd(former)

    def is_foreign(self) -> bool:
        """Return whether this is a forked child."""
        return os.getpid() != self._pid

    def put(self, number: int) -> None:
        """Send a number; safe in a signal handler."""
        with suppress(BlockingIOError):  # There is no space: see `_ClosingOnSignals._asked`.
            self._outer.send(bytes([number]))

    def get(self, *, wait: bool) -> int | None:
        """Return the next number, `_WAKE` for one of another process, None if there is none."""
        try:
            data, [(_level, _kind, sender)], _flags, _address = self._inner.recvmsg(
                1, socket.CMSG_SPACE(_CREDENTIALS.size), 0 if wait else socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return None
        return data[0] if _CREDENTIALS.unpack(sender)[0] == self._pid else _WAKE

    def close(self) -> None:
        """Restore the wake-up descriptor and close the sockets."""
        current = signal.set_wakeup_fd(_NO_DESCRIPTOR)
        if current != self._outer.fileno():
            signal.set_wakeup_fd(current)
        self._inner.close()
        self._outer.close()
