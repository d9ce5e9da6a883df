"""Forked children of the test's own process."""

import os
import signal
import time
import traceback
from collections.abc import Callable

from kip30_conformance.polling import time_scale


def run_in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> int:
    """Run *work* in a forked child; return its exit status: 0 if it returned something true.

    A child that hangs is killed, and its status is -9.
    """
    child = fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001  the parent judges by the status
            traceback.print_exc()
            os._exit(2)
    return exit_status(child)


def exit_status(child: int) -> int:
    """Wait for *child* and return its exit status; kill it if it hangs."""
    deadline = time.monotonic() + 20 * time_scale()
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(ended[1])
