"""The decision to start another thread for tasks that wait for one."""

import time

_MOST_BUSY_LOOKS = 10
_BUSY_SHARE = 0.25
"""The share of one processor from which on this process counts as busy."""
_LONG_SECONDS = 0.1
"""The wait that the interpreter cannot explain, however many threads compute."""


class Starvation:
    """Decides whether tasks that wait need another worker, from looks at them.

    They do if no worker has taken a task for a while. If this process computes meanwhile, or the
    look itself is late, the processor is busy: the workers wait for the interpreter, and another
    one would only wait with them. Then only a number of looks is evidence, or a long wait.
    """

    def __init__(self) -> None:
        """Start without tasks that wait."""
        self._taken: int | None = None
        self._since = 0.0
        self._used = 0.0
        self._busy_looks = 0

    def end(self) -> None:
        """Note that no task waits any longer."""
        self._taken = None

    def needs_worker(self, taken: int, seconds: float) -> bool:
        """Return whether there was no progress for *seconds*; then begin again.

        *taken* is how many tasks workers have taken so far.
        """
        now, used = time.monotonic(), time.process_time()
        if taken != self._taken:
            self._taken, self._since, self._used, self._busy_looks = taken, now, used, 0
            return False
        waited = now - self._since
        if waited < seconds:
            return False
        computes = seconds < _LONG_SECONDS and used - self._used > _BUSY_SHARE * waited
        is_busy = computes or waited > 2 * seconds
        self._since, self._used = now, used
        if is_busy and self._busy_looks < _MOST_BUSY_LOOKS:
            self._busy_looks += 1
            return False
        self._busy_looks = 0
        return True
