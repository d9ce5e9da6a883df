"""The thread of a backend that buries dead sessions and tells watches.

It runs while there is a session or a watch. None of its steps waits for long, so
that none delays the others. The session is renewed by another thread (`renewal`).
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection

from kip30.driver.kit.threads import started
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.embedded.doorbell import Ear
from kip30_backends.embedded.session import Sessions
from kip30_backends.embedded.vigil import Vigil
from kip30_backends.embedded.watches import Watches

_log = logging.getLogger(__name__)

_LONGEST = 0.25
_AFTER_TROUBLE = 0.02


class Pulse:
    """Starts, feeds and ends the thread. Thread-safe."""

    def __init__(
        self, make_ear: Callable[[], Ear], sessions: Sessions, watches: Watches, vigil: Vigil
    ) -> None:
        """Listen with what *make_ear* returns, for as long as there is something to do."""
        self._make_ear = make_ear
        self._sessions = sessions
        self._watches = watches
        self._vigil = vigil
        self._stopped = False
        self._orphaned: Callable[[], None] | None = None
        self._ear: Ear | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Have the thread look at what there is to do, starting it if there is none.

        Raises:
            ClosedError: The backend is closed.
            UnavailableError: There is no thread, and the system has none to spare.
        """
        with self._lock:
            if self._stopped:
                raise ClosedError("the backend is closed")
            if self._ear is not None:
                self._ear.wake()
                return
            self._start(self._make_ear())

    def stop(self) -> None:
        """End the thread and wait until it has ended, unless this is called on it."""
        with self._lock:
            self._stopped = True
            thread = self._thread
            if self._ear is not None:
                self._ear.wake()
        if thread is not None and not self.is_this_thread():
            thread.join()

    def is_this_thread(self) -> bool:
        """Say whether the caller is the thread."""
        return self._thread is threading.current_thread()

    def leave_orphaned(self, close: Callable[[], None]) -> bool:
        """Have the thread call *close* and end; say whether there is a thread to do it."""
        with self._lock:
            self._orphaned = close
            if self._ear is not None:
                self._ear.wake()
            return self._ear is not None

    def abandon(self) -> None:
        """In a forked child: there is no thread here."""
        self._lock = threading.Lock()
        self._stopped = True
        ear, self._ear, self._thread = self._ear, None, None
        if ear is not None:
            ear.close()

    def _start(self, ear: Ear) -> None:
        try:
            self._ear = ear
            self._thread = threading.Thread(
                target=self._run, args=(ear,), name="kip30-embedded", daemon=True
            )
            running = started(self._thread)
        except BaseException:  # such as KeyboardInterrupt
            self._give_up(ear)
            raise
        if not running:
            self._give_up(ear)
            raise UnavailableError("the system has no thread to spare: nothing was done")

    def _give_up(self, ear: Ear) -> None:
        """Have no thread. If it runs all the same, it ends before it uses *ear* (`_goes_on`)."""
        self._ear = self._thread = None
        ear.close()

    def _run(self, ear: Ear) -> None:
        closed: Collection[str] | None = None
        while self._goes_on(ear):
            well = self._beat(closed, ear)
            closed = ear.wait(self._pause(ear) if well else _AFTER_TROUBLE)

    def _goes_on(self, ear: Ear) -> bool:
        if self._orphaned is not None:
            self._orphaned()
        with self._lock:
            busy = self._sessions.session is not None or self._watches
            is_the_thread = self._ear is ear
            if is_the_thread and busy and not self._stopped:
                return True
            if is_the_thread:
                self._ear = self._thread = None
            ear.close()
        return False

    def _beat(self, closed: Collection[str] | None, ear: Ear) -> bool:
        well = True
        if self._watches.on_claims:
            well = self._try(lambda: self._vigil.look(closed, ear.look_seconds))
        return self._try(self._watches.tell) and well

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except (Kip30Error, sqlite3.Error, OSError):
            _log.debug("trying again soon", exc_info=True)
            return False
        except Exception:  # noqa: BLE001  one bad callback must not end the leases of all
            _log.exception("a sink or a lease callback raised")
        return True

    def _pause(self, ear: Ear) -> float:
        pauses = [_LONGEST]
        if self._watches:
            pauses.append(ear.look_seconds)
        if self._watches.on_claims:
            pauses.append(self._vigil.seconds_to_look())
        return max(0.0, min(pauses))
