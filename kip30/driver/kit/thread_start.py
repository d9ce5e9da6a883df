"""Starting threads when the system may have none to spare."""

import logging
import sys
import threading
import time
from collections import deque

log: logging.Logger = logging.getLogger(__name__)

_WARN_SECONDS = 1.0
_LIMITS = "see `ulimit -u`, and the limit of tasks of the service or container (TasksMax, pids.max)"


class _PendingStarts:
    """Threads that could not be started when they should have been.

    Attributes:
        waiting: The threads, in the order in which they are to be started.
        warned_at: When the last warning was logged, by `time.monotonic`.
    """

    def __init__(self) -> None:
        self.waiting: deque[threading.Thread] = deque()
        self.warned_at = -_WARN_SECONDS

    def warn(self, error: RuntimeError) -> None:
        """Log *error*, but no more than one such line a second: threads are tried again often.

        While the interpreter shuts down it starts no thread (since Python 3.12), and all work ends.
        """
        if sys.is_finalizing():
            return
        now = time.monotonic()
        if now - self.warned_at >= _WARN_SECONDS:
            self.warned_at = now
            log.warning("cannot start a thread: %s; %s", str(error), _LIMITS)


_postponed = _PendingStarts()


def started(thread: threading.Thread) -> bool:
    """Start *thread*; false if the system has none to spare, so that the work has to wait."""
    try:
        thread.start()
    except RuntimeError as error:
        _postponed.warn(error)
        return False
    # The system has had a thread to spare, so it may have more.
    if _postponed.waiting:
        _start_postponed()
    return True


def start_eventually(thread: threading.Thread) -> None:
    """Start *thread*, or else after the next thread for which the system has room.

    For work that must not be lost where nothing can be raised, as in a finalizer.
    """
    if not started(thread):
        _postponed.waiting.append(thread)


def join_others(*threads: threading.Thread | None) -> None:
    """Wait until *threads* have ended, but not for the calling one, which would never return."""
    present = threading.current_thread()
    for thread in threads:
        if thread is not None and thread is not present:
            thread.join()


def _start_postponed() -> None:
    while True:
        try:
            thread = _postponed.waiting.popleft()
        except IndexError:
            return
        try:
            thread.start()
        except RuntimeError as error:
            _postponed.warn(error)
            _postponed.waiting.appendleft(thread)
            return
