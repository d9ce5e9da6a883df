"""Ending a command by a signal as by an error: everything open is closed on the way."""

import _weakrefset
import signal
import sys
import threading
import weakref
from types import FrameType
from typing import Any, NoReturn

from typing_extensions import override

from kip30.cli._exit_codes import after_signal

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_RERAISE_SECONDS = 0.01
_DROPPING_FILES = (weakref.__file__, _weakrefset.__file__)
_LOCKING = frozenset({"__enter__", "__exit__", "_acquire_restore", "_release_save"})


class UnwindingOnSignals:
    """While this lasts, SIGTERM and SIGHUP raise `SystemExit`, and SIGINT `KeyboardInterrupt`.

    A signal that the parent process has ignored stays ignored; one that it has blocked is
    unblocked, or the program could not be ended by it. Main thread only.
    """

    def __init__(self) -> None:
        """Handle nothing yet."""
        self._handled: list[signal.Signals] = []
        # The signal that came where nothing may be raised; the timer is on while there is one.
        self._waiting: int | None = None

    def __enter__(self) -> None:
        """Begin."""
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handled.append(number)
                signal.signal(number, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handled)

    def __exit__(self, *_error: object) -> None:
        """Give the signals their default effect; raise what a signal that still waits raises.

        A signal that is ignored by now stays ignored: the exit status is known.
        """
        for number in self._handled:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        if self._waiting is not None:
            self._raise(self._waiting)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if _may_raise(frame):
            self._raise(number)
        self._waiting = number
        signal.signal(signal.SIGALRM, lambda _alarm, later: self._handle(number, later))
        # Repeated: a signal right before a blocking call is not seen before that call ends.
        signal.setitimer(signal.ITIMER_REAL, _RERAISE_SECONDS, _RERAISE_SECONDS)

    def _raise(self, number: int) -> NoReturn:
        if self._waiting is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            # Not the default, which kills: the last alarm may be on its way.
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            self._waiting = None
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(after_signal(number))


class InterruptingOnSignals(UnwindingOnSignals):
    """While this lasts, SIGTERM and SIGHUP raise `KeyboardInterrupt` as well.

    For code in the block that takes `SystemExit` for an error of its own, as pytest takes it for a
    failed test. The block itself ends with `SystemExit` then. Within an `UnwindingOnSignals`.
    """

    def __init__(self) -> None:
        """Handle nothing yet."""
        super().__init__()
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    @override
    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        super().__enter__()

    @override
    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        except KeyboardInterrupt:  # of a signal that waited
            if self._received is None:
                raise
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        if self._received is not None:
            sys.exit(after_signal(self._received))

    @override
    def _raise(self, number: int) -> NoReturn:
        if number != signal.SIGINT:
            self._received = number
        super()._raise(signal.SIGINT)


def _may_raise(frame: FrameType | None) -> bool:
    """Return whether what is raised in *frame* ends the program, and leaves no lock behind."""
    while frame is not None:
        if _is_in_finalizer(frame) or _is_locking(frame):
            return False
        frame = frame.f_back
    return True


def _is_in_finalizer(frame: FrameType) -> bool:
    """Return whether *frame* may be a finalizer's or a weak reference's callback.

    Python drops what those raise, and every import has such a callback.
    """
    code = frame.f_code
    return (
        code.co_name == "__del__"
        or code.co_filename in _DROPPING_FILES
        or code.co_filename.startswith("<frozen importlib")
    )


def _is_locking(frame: FrameType) -> bool:
    """Return whether *frame* takes or releases the lock of a `threading.Condition`.

    An exception raised between the lock and the with-block would leave it locked forever.
    """
    code = frame.f_code
    return code.co_name in _LOCKING and code.co_filename == threading.__file__
