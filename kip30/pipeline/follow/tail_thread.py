"""The thread that runs a tail: a pass each interval, and again after failures."""

import random
import threading
import time

from kip30.errors import PositionLostError, UnavailableError
from kip30.pipeline.follow.tail import StoppedError, Tail
from kip30.pipeline.run.progress import Progress
from kip30.pipeline.run.wakeup import Wakeup

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0


class Backoff:
    """Pauses between attempts: each longer than the last one, with jitter."""

    def __init__(self) -> None:
        """Begin with the shortest one."""
        self._pause = FIRST_PAUSE

    def next(self) -> float:
        """Return how many seconds to wait now."""
        pause, self._pause = self._pause, min(LONGEST_PAUSE, 2 * self._pause)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._pause = FIRST_PAUSE


class TailThread:
    """Runs a tail until it is stopped, fails, or has read what was there, with *once*.

    Attributes:
        news: Set whenever the journal may have grown, and at the end.
        error: Why it ended before it was stopped; None: it did not.
    """

    def __init__(
        self, tail: Tail, stop: Wakeup, progress: Progress, *, once: bool, interval: float
    ) -> None:
        """Start.

        Args:
            tail: The tail to run; the thread closes it.
            stop: Ends the thread after the segment under way.
            progress: Receives the problems.
            once: End after one pass, or after the first failure.
            interval: How many seconds there are from one pass to the next.
        """
        self._tail = tail
        self._stop = stop
        self._progress = progress
        self._once = once
        self._interval = interval
        self.news: Wakeup = Wakeup()
        self.error: BaseException | None = None
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="kip30-tail", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """True if the journal no longer grows."""
        return self._has_ended

    def close(self) -> None:
        """Wait until it has ended; *stop* must be set."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._passes()
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001  the main thread raises it
            self.error = error
        finally:
            self._tail.close()
            self._has_ended = True
            self.news.set()

    def _passes(self) -> None:
        backoff = Backoff()
        while not self._stop.is_set:
            begun = time.monotonic()
            try:
                self._tail.advance()
            except (UnavailableError, PositionLostError) as error:
                if self._once:
                    raise
                self._progress.warn(f"the store is read again soon: {error}")
                self._tail.close()
                self._stop.wait(backoff.next())
                continue
            finally:
                self.news.set()
            if self._once:
                return
            backoff.reset()
            self._stop.wait(max(0.0, self._interval - (time.monotonic() - begun)))
