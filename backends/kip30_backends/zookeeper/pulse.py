"""The clock of one backend: a thread that ends what is late and keeps the session alive."""

import logging
import threading
from collections.abc import Callable, Sequence

from kip30.driver.kit.threads import started
from kip30.errors import UnavailableError

log: logging.Logger = logging.getLogger(__name__)


class Pulse:
    """Does a few quick things again and again until it is stopped."""

    def __init__(self, seconds: float, beats: Sequence[Callable[[], None]]) -> None:
        """Do *beats* every *seconds*, from `start` on."""
        self._seconds = seconds
        self._beats = beats
        self._stopped = threading.Event()
        self._at_end: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="kip30-zookeeper", daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            UnavailableError: The system has none to spare.
        """
        if not started(self._thread):
            raise UnavailableError("the system has no thread to spare: nothing was opened")

    def stop(self) -> None:
        """End the thread, and wait for that unless this is called on it."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def stop_with(self, last: Callable[[], None]) -> None:
        """Have the thread do *last* and end; return at once."""
        self._at_end = last
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            for beat in self._beats:
                self._try(beat)
        if self._at_end is not None:
            self._try(self._at_end)

    def _try(self, beat: Callable[[], None]) -> None:
        try:
            beat()
        except Exception:  # a sink or a lease callback that raises must not end the session
            log.exception("the clock goes on after")
