"""The first and last lines of the ``kip30`` program.

They are a package of their own because importing anything of `kip30` imports all of `kip30`, and
a signal may come during that.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

_FIRST_PROCESS = 1
_WITHOUT_EFFECT = (signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> NoReturn:
    """Run the command line and exit.

    Before the first line of kip30 runs and after the last one, SIGINT ends the process as it ends
    a program in C: there is nothing to undo, and no traceback. Between them the command line
    handles it. A SIGINT that the parent process has ignored stays ignored.

    The kernel drops signals that would have their default effect on the first process of a
    container. There a handler ends the process until the command line handles them.

    SIGUSR1 and SIGUSR2 have no effect, because they may be for the command of ``kip30 run``.
    """
    for number in _WITHOUT_EFFECT:
        _handle_unless_ignored(number, _do_nothing)
    heeds_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getpid() == _FIRST_PROCESS:
        for number in _ENDING:
            _handle_unless_ignored(number, _end)
    from kip30.cli import main as run  # noqa: PLC0415  signals have to be prepared for it

    try:
        run()
    except KeyboardInterrupt:
        # It came before or after the part of the program that closes what is open.
        sys.exit(128 + signal.SIGINT)
    finally:
        if heeds_interrupt and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _handle_unless_ignored(number: int, handler: Callable[[int, FrameType | None], None]) -> None:
    # Not SIG_IGN, which every program that is started would inherit.
    if signal.getsignal(number) == signal.SIG_DFL:
        signal.signal(number, handler)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)
