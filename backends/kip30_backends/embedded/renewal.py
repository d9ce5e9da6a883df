"""The thread that renews the session.

It does nothing else, so that neither slow watches nor a look at other processes delay a renewal;
and its writes go before all others of this process (`WriteQueue`).
"""

import logging
import sqlite3
import threading

from kip30.driver.kit.threads import started
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.embedded.session import Sessions

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 0.25
_RETRY_PAUSE = 0.02


class Renewal:
    """Runs the thread for as long as there is a session. Thread-safe."""

    def __init__(self, sessions: Sessions) -> None:
        """Renew what *sessions* has open."""
        self._sessions = sessions
        # Entered by `with` itself, because a `Condition` is entered by code in Python: a signal
        # handler that raises in it would leave the lock taken.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._woken = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Look at the session now, starting the thread if there is none.

        Raises:
            ClosedError: The backend is closed.
            UnavailableError: The system has no thread to spare.
        """
        with self._lock:
            if self._stopped:
                raise ClosedError("the backend is closed")
            self._woken = True
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        """End the thread and wait until it has ended, unless this is called on it."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and not self.is_this_thread():
            thread.join()

    def is_this_thread(self) -> bool:
        """Say whether the caller is the thread."""
        return self._thread is threading.current_thread()

    def abandon(self) -> None:
        """In a forked child: there is no thread here."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopped = True
        self._thread = None

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="kip30-embedded-renewal", daemon=True)
        try:
            self._thread = thread
            running = started(thread)
        except BaseException:  # a signal handler raised, and the thread may run: it will end
            self._thread = None
            raise
        if not running:
            self._thread = None
            raise UnavailableError("the system has no thread to spare that renews the session")

    def _run(self) -> None:
        while self._goes_on():
            pause = self._renewed()
            with self._lock:
                if not self._woken and not self._stopped:
                    self._changed.wait(pause)
                self._woken = False

    def _goes_on(self) -> bool:
        with self._lock:
            if not self.is_this_thread():
                return False
            if self._sessions.session is not None and not self._stopped:
                return True
            self._thread = None
        return False

    def _renewed(self) -> float:
        """Renew the session if that is due; return in how many seconds to look again."""
        try:
            self._sessions.renew()
        except (Kip30Error, sqlite3.Error, OSError):
            _log.debug("retrying the renewal soon", exc_info=True)
            return _RETRY_PAUSE
        except Exception:  # noqa: BLE001  one bad callback must not end the leases of all
            _log.exception("a lease callback raised")
        left = self._sessions.seconds_to_renewal()
        return _LONGEST_PAUSE if left is None else max(0.0, min(_LONGEST_PAUSE, left))
