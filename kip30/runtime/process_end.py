"""Closing what is open when the process ends, also where Python calls nothing of `atexit`.

Before Python 3.13 a process of `multiprocessing` that was forked, by ``fork`` or ``forkserver``,
ends without it, and runs the finalizers of `multiprocessing.util` instead.
"""

import atexit
import sys
import threading
from collections.abc import Callable
from typing import Any

from kip30.driver.kit.thread_start import started

_PAUSE = 0.1
_NAME = "kip30-last"


class ProcessEnd:
    """Calls a function when the process ends as usual, unless it is cancelled before."""

    def __init__(self, function: Callable[[], None]) -> None:
        """Call *function*, which may be called more than once."""
        self._function = function
        atexit.register(function)
        self._finalizer = _finalizer(self._end)

    def cancel(self) -> None:
        """Forget the function."""
        atexit.unregister(self._function)
        if self._finalizer is not None:
            self._finalizer.cancel()

    def _end(self) -> None:
        """Call the function after the threads that the process waits for, as `atexit` would."""
        thread = threading.Thread(target=self._end_last, name=_NAME, daemon=False)
        if not (_busy_threads() and started(thread)):
            self._function()

    def _end_last(self) -> None:
        for other in iter(_any_busy_thread, None):
            other.join(_PAUSE)
        self._function()


def _finalizer(function: Callable[[], None]) -> Any:
    """Return a finalizer of `multiprocessing`; None if this is no process of it."""
    processes: Any = sys.modules.get("multiprocessing.process")
    if sys.version_info >= (3, 13) or processes is None or processes.parent_process() is None:
        return None
    from multiprocessing.util import Finalize  # noqa: PLC0415  it is loaded there, and only there

    return Finalize(None, function, exitpriority=0)


def _busy_threads() -> list[threading.Thread]:
    """Return the threads, other than the main one and those that wait here, that keep a process."""
    return [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread() and thread.name != _NAME
    ]


def _any_busy_thread() -> threading.Thread | None:
    return next(iter(_busy_threads()), None)
