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
import math
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
from kip30.runtime.term_work import ReleaseHold, holding

log: logging.Logger = logging.getLogger(__name__)

_Handler = Callable[[int, FrameType | None], object] | int | None
_REPEAT_SECONDS = 0.02
_SPIN_SECONDS = 0.001
_GRACE_SECONDS = 5.0
"""Seconds that the main thread may take if no lease sets a limit."""

_STATUS_OF_SIGNAL = 128
"""Number that a shell adds to that of a signal that ended a process."""

_ENDS_NOTHING = {
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGURG,
    signal.SIGWINCH,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
}
_LIBRARY = {"kip30", "kip30_backends"}
_WAKE = 0
"""A number in the mailbox that is no signal."""
_NO_DESCRIPTOR = -1
_CREDENTIALS = struct.Struct("3i")


def close_on_signals(
    *locators: Closeable, signals: Sequence[int] = (signal.SIGTERM, signal.SIGHUP)
) -> AbstractContextManager[None]:
    """Return a context in which a signal closes *locators* before it takes its usual effect.

    On the first of *signals* threads close the locators, each by its operation timeout: terms and
    members end locally at once, and calls in other threads end with `ClosedError`. Claims are
    released when the work has let go, or when the leases would have ended without another renewal.

    *Without a previous handler*, the work of the main thread lets go as soon as that thread runs
    Python code outside of kip30: it stops there, the locators are closed, and the process
    ends by the signal. If the main thread does not get there before the leases end, as in a long
    call of a C library or in `signal.sigwait`, the process ends with status 128 plus the number of
    the signal, and releases nothing: others lead after the session timeout. The first process
    of a container (PID 1), which its own signals do not end, ends with that status, too. As with
    the signal itself, no buffer is flushed and no ``finally`` runs.

    *With a previous handler*, that handler gets the signal once, when the terms have ended, and the
    main thread continues. Its work has let go when this block ends.

    Work in other threads has let go when the callbacks of nominations have returned, and the blocks
    of `lead` are left; threads that only call `is_valid` are not waited for. Further signals are
    ignored until the process ends, or until the previous handler has been called.

    A signal that is ignored, as SIGHUP under `nohup`, stays ignored. A forked child does not close
    what it inherited: its signals have the effect they had before. Linux only.

    Args:
        *locators: The locators, or handles of locators, to close.
        signals: The numbers of the signals.

    Raises:
        UsageError: The context was not entered on the main thread. Nothing was changed.
        UnavailableError: On entering, the system cannot start a thread. Nothing was changed.
    """
    return _ClosingOnSignals(locators, signals)


class _ClosingOnSignals(AbstractContextManager[None]):
    """One use of `close_on_signals`.

    The handler runs in the main thread, between any two instructions of it: the locks of this
    library may be held by the very code it interrupts. So it takes no lock and closes nothing.

        waiting    --a signal-->                     ending
        ending     --the terms have ended-->         repeating
        repeating  --the main thread is stopped-->   closing     (no previous handler)
        repeating  --previous handler is called-->   letting go  (with one)
        letting go --the block ends-->               closing
        closing    --all is released-->              ended
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
        # Set by the thread: the terms have ended; it sends no further signal to the main thread;
        # all is done.
        self._is_repeating = False
        self._has_repeated = False
        self._has_ended = False
        # Written by the main thread only: the handler knows that the terms have ended and has
        # stopped the main thread or called the previous handler, or the block ended.
        self._is_over = False

    @override
    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("use close_on_signals on the main thread: signals are handled there")
        self._mailbox = _Mailbox()
        if not started(self._thread):
            self._mailbox.close()
            raise UnavailableError("no thread to spare: signal handling is unchanged")
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
            for locator in self._locators:
                _close(locator)
            self._deliver(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._mailbox.is_foreign():
            self._restore()
            self._deliver(number, frame)
        elif not self._is_repeating:
            self._asked = self._asked or number
            self._mailbox.put(number)
        elif not self._is_over and self._number is not None:
            self._go_on(self._number, frame)

    def _go_on(self, number: int, frame: FrameType | None) -> None:
        """Block here until the locators are closed, or call the previous handler."""
        is_last = self._before[number] == signal.SIG_DFL
        if is_last and _is_in_library(frame):
            return  # its locks are needed for closing: the next repetition comes soon
        self._is_over = True
        # No repetition may reach the previous handler. The sleep lets a pending one arrive here.
        while not (self._has_ended if is_last else self._has_repeated):
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
            return
        os.kill(os.getpid(), number)
        if self._ends_process(number):  # but not the first process of a pid namespace
            os._exit(_STATUS_OF_SIGNAL + number)

    def _ends_process(self, number: int) -> bool:
        return self._before[number] == signal.SIG_DFL and number not in _ENDS_NOTHING

    def _run(self) -> None:
        self._number = self._next_signal()
        if self._number is not None:
            self._close(self._number)
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

    def _close(self, number: int) -> None:
        """Close the locators; tell their stores when the main thread has let go."""
        closers = [_Closer(locator) for locator in self._locators]
        for closer in closers:
            closer.begin()
        self._repeat(number, closers)
        self._has_repeated = True
        while self._before[number] != signal.SIG_DFL and not self._is_ending:
            self._mailbox.get(wait=True)
        for closer in closers:
            closer.let_go()
        seconds = _seconds_left(closers)
        for closer in closers:
            closer.end(seconds)

    def _repeat(self, number: int, closers: "Sequence[_Closer]") -> None:
        """Send the signal to the main thread until the handler notices that the terms have ended.

        If that is not before the first lease ends, end the process.
        """
        main = threading.main_thread().ident
        until = time.monotonic() + _GRACE_SECONDS
        while main is not None and not self._is_over:
            self._is_repeating = all(closer.has_ended_terms() for closer in closers)
            if self._is_repeating:
                signal.pthread_kill(main, number)
                until = time.monotonic() + _seconds_left(closers, until - time.monotonic())
            if time.monotonic() >= until and self._ends_process(number):
                os._exit(_STATUS_OF_SIGNAL + number)
            time.sleep(_REPEAT_SECONDS if self._is_repeating else _SPIN_SECONDS)


class _Closer:
    """Closes one locator on a thread, and delays the releases in its store.

    Without a thread to spare it is closed in the end, by the caller.
    """

    def __init__(self, locator: Closeable) -> None:
        self._locator = locator
        self._hold = ReleaseHold(threading.main_thread().ident or 0)
        self._has_let_go = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kip30-signal-close", daemon=True)
        self._has_thread = False

    def begin(self) -> None:
        """Start to end the terms and close the locator."""
        self._has_thread = started(self._thread)

    def has_ended_terms(self) -> bool:
        """Return whether the terms have ended, or the closing thread does not run."""
        return self._hold.is_used.is_set() or self._has_closed()

    def seconds_left(self) -> float:
        """Return for how many seconds the lease is still valid; infinite if nothing is held."""
        return self._hold.remaining_seconds()

    def let_go(self) -> None:
        """Stop delaying the releases."""
        self._hold.release()
        self._has_let_go.set()

    def end(self, seconds: float) -> None:
        """Wait up to *seconds* until it is closed."""
        if self._has_thread:
            self._thread.join(seconds)
        else:
            _close(self._locator)

    def _has_closed(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        with holding(self._hold):
            _close(self._locator)
        if self._hold.is_used.is_set():
            self._has_let_go.wait()
            _close(self._locator)  # waits for what the first close left to a thread


def _seconds_left(closers: "Sequence[_Closer]", without: float = _GRACE_SECONDS) -> float:
    """Return how long the first lease to end is still valid; *without* if none is held."""
    seconds = min((closer.seconds_left() for closer in closers), default=math.inf)
    return without if math.isinf(seconds) else max(0.0, seconds)


def _close(locator: Closeable) -> None:
    try:
        locator.close()
    except Exception:
        log.exception("not closed at a signal")


def _is_in_library(frame: FrameType | None) -> bool:
    """Return whether *frame*, or what called it, is code of this library."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARY:
            return True
        frame = frame.f_back
    return False


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
