"""The thread of `AbstractCoordinator.start`."""

import logging
import threading
from collections.abc import Callable

from kip30.driver.clock import Clock
from kip30.driver.kit.retry import Retry
from kip30.driver.kit.thread_start import started
from kip30.errors import ClosedError, Kip30Error, UnavailableError

log: logging.Logger = logging.getLogger(__name__)


class PollThread:
    """Polls until its coordinator is closed, or has ended.

    Attributes:
        failure: What the last poll has raised; None if it has returned.
    """

    def __init__(
        self,
        poll: Callable[[], object],
        *,
        closing: threading.Event,
        is_over: Callable[[], bool],
        clock: Clock,
        name: str,
    ) -> None:
        """Do nothing before `start`.

        *closing* is set when the coordinator ends; *is_over* returns whether no poll can succeed
        any longer. The type of an error is no sign of that: an application may raise any.
        """
        self._poll = poll
        self._closing = closing
        self._is_over = is_over
        self._clock = clock
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread.

        Raises:
            UnavailableError: The system has no thread to spare. Nothing was done.
        """
        if not started(self._thread):
            raise UnavailableError("the system has no thread to spare: nothing was started")

    def is_current(self) -> bool:
        """Return whether this is the calling thread."""
        return threading.current_thread() is self._thread

    def join(self, timeout_seconds: float) -> None:
        """Wait for its end, but not for the calling thread's own."""
        if not self.is_current():
            self._thread.join(timeout_seconds)

    def _serve(self) -> None:
        retry = Retry(self._clock)
        while not self._closing.is_set():
            try:
                self._poll()
                self.failure = None
                retry.succeeded()
            except BaseException as error:  # also SystemExit, which must not end the thread
                if isinstance(error, Kip30Error) and self._is_over():
                    if not isinstance(error, ClosedError):
                        log.error("a group member has ended: %s", error)  # noqa: TRY400  an answer
                    return
                self.failure = error
                log.exception("poll failed; polling again after a pause")
                retry.failed()
                self._closing.wait(max(0.0, retry.due - self._clock.now()))
