"""The driver's own threads: started while a lack of them can still be reported, and again later.

The driver starts them when it needs them, deep inside, and does not expect that to fail: an event
loop whose thread did not start counts as running, and no answer is ever read again.
"""

import sys
import threading
from typing import Any

import cassandra.cluster

from kip30.errors import UnavailableError

_cluster: Any = cassandra.cluster


def start_workers(cluster: Any, count: int) -> None:
    """Start all *count* threads of the executor of *cluster*, which otherwise come as needed.

    Raises:
        UnavailableError: The system has no thread to spare.
    """
    go_on = threading.Event()
    try:
        for _ in range(count):
            cluster.executor.submit(go_on.wait)
    except RuntimeError as error:
        raise UnavailableError(f"the driver has no thread to spare: {error}") from error
    finally:
        go_on.set()


class EventLoopWatchdog:
    """Starts the thread of the driver's event loop if that could not be started. For one thread."""

    def __init__(self) -> None:
        """Have seen nothing yet."""
        self._suspect: threading.Thread | None = None
        """The thread that was not alive at the last look; the driver may be about to start it."""

    def look(self) -> None:
        """Start the thread if the last look found it missing as well."""
        loop: Any = getattr(
            sys.modules[_cluster.DefaultConnection.__module__], "_global_loop", None
        )
        thread: threading.Thread | None = getattr(loop, "_thread", None)
        if thread is None or thread.is_alive() or not loop._started:  # noqa: SLF001  no public state
            self._suspect = None
        elif self._suspect is not thread:
            self._suspect = thread
        else:
            _restart(loop)


def _restart(loop: Any) -> None:
    with loop._lock:  # noqa: SLF001  what the driver's own `maybe_start` takes
        loop._started = False  # noqa: SLF001  so that it starts again
    try:
        loop.maybe_start()
    except RuntimeError:
        return  # it is tried again at the next look
