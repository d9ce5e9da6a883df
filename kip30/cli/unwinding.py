"""Ending a command by a signal as by an error: whatever is open is closed on the way."""

import signal
import sys
from types import FrameType

from kip30.cli.status import after_signal

_AGAIN_SECONDS = 0.01


def unwind_on_signals() -> None:
    """Have SIGTERM and SIGHUP raise `SystemExit`, unless whoever started us ignores them."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _unwind)


def _unwind(number: int, frame: FrameType | None) -> None:
    if not _swallows(frame):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, _ignore)
        sys.exit(after_signal(number))
    signal.signal(signal.SIGALRM, lambda _alarm, later: _unwind(number, later))
    # Again and again: what arrives right before a call that waits is not seen before that ends.
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS, _AGAIN_SECONDS)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the last alarm may have been on its way."""


def _swallows(frame: FrameType | None) -> bool:
    """Say whether what is raised now may get lost.

    Python drops what a weak reference's callback or a finalizer raises, and every import has
    such a callback.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
