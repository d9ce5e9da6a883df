"""Threads for callers that do not wait: as many as are busy, up to a limit; idle ones end."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.thread_start import join_others
from kip30.errors import ClosedError, UnavailableError

Work = Callable[[], object]

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 2.0


class ThreadPool:
    """Does work on its own threads. Thread-safe. Exceptions of work are logged."""

    def __init__(self, name: str, *, most: int = 4) -> None:
        """Start no thread yet; start up to *most* threads of that *name* when there is work."""
        self._name = name
        self._most = most
        self._kept = 0  # how many threads stay although there is no work
        # All of these are written under the condition, which is notified for each piece of work.
        self._changed = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._threads: dict[threading.Thread, None] = {}  # keys alone, in the order of starts
        # How many threads wait for work. Those that were notified and have not woken count too,
        # so a new thread is needed once it does not exceed what waits.
        self._idle = 0
        self._stopped = False

    def keep_one(self) -> None:
        """Keep a thread from now on, until `stop`, so that work need not wait for one.

        Raises:
            UnavailableError: There is no thread, and the system refuses one.
        """
        with self._changed:
            if not self._threads and not self._stopped:
                self._grow()
            self._kept = 1

    def do(self, work: Work) -> None:
        """Do *work* soon.

        Raises:
            ClosedError: This is stopped.
            UnavailableError: There is no thread, and the system refuses another one.
        """
        with self._changed:
            if self._stopped:
                raise ClosedError(CLOSED)
            if self._idle > len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self._most:
                self._grow()
            self._waiting.append(work)

    def stop(self) -> None:
        """Accept no more work, and wait until accepted work is done, unless called by that work."""
        with self._changed:
            self._stopped = True
            threads = list(self._threads)
            self._changed.notify_all()
        join_others(*threads)

    def _grow(self) -> None:
        """Start another thread; if the system has none to spare, rely on the others."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise UnavailableError(f"nothing was sent: {error}") from error
            _log.warning("cannot start a thread: %s", str(error))
        else:
            self._threads[thread] = None

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001  the thread continues
                _log.exception("a call failed in an unexpected way")
            del work  # an idle thread must keep nothing alive

    def _next(self) -> Work | None:
        """Wait for something to do; None if there was nothing for a while."""
        with self._changed:
            self._idle += 1
            while not self._changed.wait_for(self._is_needed, self._patience()):
                if self._patience() is not None:
                    break
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads.pop(threading.current_thread(), None)
            return None

    def _is_needed(self) -> bool:
        return bool(self._waiting) or self._stopped

    def _patience(self) -> float | None:
        """Return how many seconds a thread waits for work; None if it is one that stays."""
        return None if len(self._threads) <= self._kept else _IDLE_SECONDS
