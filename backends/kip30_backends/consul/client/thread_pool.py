"""Threads for callers that do not wait: as many as are busy, up to a limit, and none later."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from kip30.errors import ClosedError, UnavailableError

Work = Callable[[], object]

_log = logging.getLogger(__name__)

CLOSED = "the backend is closed"

_MOST = 4
_IDLE_SECONDS = 2.0


class ThreadPool:
    """Does work on threads of its own. Thread-safe. What work raises is logged."""

    def __init__(self) -> None:
        """Have no thread yet."""
        # All of these are written under the condition, which is notified for each piece of work.
        self._changed = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._threads: set[threading.Thread] = set()
        # How many threads wait for work. Those that were notified and have not woken count too,
        # so a new thread is needed once it does not exceed what waits.
        self._idle = 0
        self._stopped = False

    def do(self, work: Work) -> None:
        """Do *work* soon.

        Raises:
            ClosedError: This is stopped.
            UnavailableError: There is no thread, and none to be had.
        """
        with self._changed:
            if self._stopped:
                raise ClosedError(CLOSED)
            if self._idle > len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < _MOST:
                self._grow()
            self._waiting.append(work)

    def stop(self) -> None:
        """Take no more, and wait until all that was taken is done, unless this is called by it."""
        with self._changed:
            self._stopped = True
            threads = list(self._threads)
            self._changed.notify_all()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _grow(self) -> None:
        """Have one thread more; if the system has none to spare, the others have to do."""
        thread = threading.Thread(target=self._run, name="kip30-consul", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise UnavailableError(f"nothing was asked: {error}") from error
            _log.warning("no thread: %s", str(error))
        else:
            self._threads.add(thread)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001  the thread goes on
                _log.exception("a call failed in an unexpected way")

    def _next(self) -> Work | None:
        """Wait for something to do; None if there was nothing for a while."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._stopped, _IDLE_SECONDS)
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads.discard(threading.current_thread())
            return None
