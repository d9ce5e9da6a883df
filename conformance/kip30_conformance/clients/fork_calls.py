"""Calls made in a forked child."""

import os
import signal
import warnings
from collections.abc import Callable

from kip30_conformance.polling import time_scale

_SECONDS = 20


def in_forked_child(call: Callable[[], object]) -> str:
    """Fork, do *call* in the child, and return its result as text or its error's class name.

    A child that hangs is ended by an alarm, and the answer is then empty.
    """
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking among threads is the point
        pid = os.fork()
    if not pid:
        _be_the_child(call, write_end)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def _be_the_child(call: Callable[[], object], write_end: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(round(_SECONDS * max(1.0, time_scale())))
    try:
        text = str(call())
    except Exception as error:  # noqa: BLE001  of any error the parent wants the name
        text = type(error).__name__
    os.write(write_end, text.encode())
    os._exit(0)
