"""Executes its arguments, and ends when its parent does: ``ends_with_parent.py PARENT ...``.

An interrupted pytest ends without teardown. Its children would run forever, unless they read from
it. To be run as a file, with ``-I -S``, for a quick start.
"""

import ctypes
import os
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1


def main(parent: str, *command: str) -> None:
    """Execute *command* in this process, to be killed with the thread of *parent* that started it.

    The kernel keeps that over the execution; processes that the command starts do not inherit it.
    """
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(parent):  # it has died already
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  that is the point


if __name__ == "__main__":
    main(*sys.argv[1:])
