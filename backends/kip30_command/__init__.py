"""The first and last lines of the ``kip30`` program.

They are a package of their own because importing anything of `kip30` imports all of `kip30`, and
Ctrl-C may come during that.
"""

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit.

    Before the first line of kip30 runs and after the last one, SIGINT ends the process as it ends
    a program in C: there is nothing to undo, and no traceback. Between them the command line
    handles it. A SIGINT that the parent process has ignored stays ignored.
    """
    heeds_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds_interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kip30.cli import main as run  # noqa: PLC0415  SIGINT has to be prepared for it

    try:
        run()
    except KeyboardInterrupt:
        # It came before or after the part of the program that closes what is open.
        sys.exit(128 + signal.SIGINT)
    finally:
        if heeds_interrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
