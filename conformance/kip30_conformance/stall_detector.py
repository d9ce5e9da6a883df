"""Detects when this process could not run, by gaps between beats of a thread that only beats."""

import threading
import time

from typing_extensions import override

from kip30.driver.closeable import Closeable

_BEAT_SECONDS = 0.05
GAP_SECONDS = 0.2
"""A shorter gap does not count: the processor is shared."""


class StallDetector(Closeable):
    """Records every period in which this process was stalled, stopped or without a processor."""

    def __init__(self) -> None:
        """Start to watch, until `close` or the end of the process."""
        self._over = threading.Event()
        self._gaps: list[tuple[float, float]] = []
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="stall detector", daemon=True)
        self._thread.start()

    def stalled_seconds(self, since: float) -> float:
        """Return for how many seconds this process was stalled *since* that moment."""
        now = time.monotonic()
        gaps = [*self._gaps, (self._last + _BEAT_SECONDS, now)]
        return sum(max(0.0, end - max(start, since)) for start, end in gaps[-50:])

    def running_seconds(self, since: float) -> float:
        """Return for how many seconds *since* that moment this process could run."""
        return time.monotonic() - since - self.stalled_seconds(since)

    @override
    def close(self) -> None:
        """Stop watching, and wait for the end of the thread. Idempotent."""
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            last, self._last = self._last, time.monotonic()
            if self._last - last > GAP_SECONDS:
                self._gaps.append((last + _BEAT_SECONDS, self._last))
