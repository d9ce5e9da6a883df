"""Threads that the system may not have to spare."""

import logging
import threading

log: logging.Logger = logging.getLogger(__name__)


def started(thread: threading.Thread) -> bool:
    """Start *thread*; false if the system has none to spare, so that the work has to wait."""
    try:
        thread.start()
    except RuntimeError as error:
        log.warning("no thread: %s", str(error))
        return False
    return True
