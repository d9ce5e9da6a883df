"""Whether this process was allowed to run: gaps between beats of a thread that only beats."""

import threading
import time

_BEAT_SECONDS = 0.05
_GAP_SECONDS = 0.2


class Heartbeat:
    """Notes every time for which this process stood still, stopped or for want of a processor."""

    def __init__(self) -> None:
        """Begin to beat, until the process ends."""
        self._gaps: list[tuple[float, float]] = []
        self._last = time.monotonic()
        threading.Thread(target=self._beat, name="storm heartbeat", daemon=True).start()

    def missed(self, since: float) -> float:
        """Return for how many seconds *since* that moment the process stood still."""
        now = time.monotonic()
        gaps = [*self._gaps, (self._last + _BEAT_SECONDS, now)]
        return sum(max(0.0, end - max(start, since)) for start, end in gaps[-50:])

    def _beat(self) -> None:
        while True:
            time.sleep(_BEAT_SECONDS)
            last, self._last = self._last, time.monotonic()
            if self._last - last > _GAP_SECONDS:
                self._gaps.append((last + _BEAT_SECONDS, self._last))
