"""Whether this process was allowed to run: gaps between beats of a thread that only beats."""

import threading
import time

_BEAT_SECONDS = 0.05
GAP_SECONDS = 0.2
"""A shorter gap is none: the processor is shared."""


class Heartbeat:
    """Notes every time for which this process stood still, stopped or for want of a processor."""

    def __init__(self) -> None:
        """Begin to beat, until `stop` or the end of the process."""
        self._over = threading.Event()
        self._gaps: list[tuple[float, float]] = []
        self._last = time.monotonic()
        threading.Thread(target=self._beat, name="suite heartbeat", daemon=True).start()

    def missed(self, since: float) -> float:
        """Return for how many seconds *since* that moment the process stood still."""
        now = time.monotonic()
        gaps = [*self._gaps, (self._last + _BEAT_SECONDS, now)]
        return sum(max(0.0, end - max(start, since)) for start, end in gaps[-50:])

    def stop(self) -> None:
        """Beat no longer."""
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_SECONDS):
            last, self._last = self._last, time.monotonic()
            if self._last - last > GAP_SECONDS:
                self._gaps.append((last + _BEAT_SECONDS, self._last))
