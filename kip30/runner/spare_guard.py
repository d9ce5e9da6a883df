"""The guard that waits for the next command of a runner."""

import time
from collections.abc import Sequence

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.runner.guard_handle import GuardHandle

_RETRY_SECONDS = 1.0


class SpareGuard(Closeable):
    """Keeps a guard that was started before it is needed: its start delays no command.

    It costs an idle interpreter. A spare guard that cannot be started, or ends, is no failure: the
    next one is started later, at the latest by `take`. Not thread-safe.
    """

    def __init__(self, descriptors: Sequence[int]) -> None:
        """Start none yet.

        Args:
            descriptors: Those that every command gets, as for `GuardHandle`.
        """
        self._descriptors = descriptors
        # The spare guard; None before it is started, and once it is taken or has ended.
        self._guard: GuardHandle | None = None
        # Not to start one before this moment of `time.monotonic`: the last one has failed.
        self._retry_at = 0.0

    @property
    def pids(self) -> Sequence[int]:
        """The process id of the spare guard, if there is one. It is not reaped yet."""
        return () if self._guard is None else (self._guard.pid,)

    def provide(self) -> None:
        """Start the spare guard unless there is one; do nothing for 1 s after that has failed."""
        if self._is_there() or time.monotonic() < self._retry_at:
            return
        # Also after success: a guard that ends at once must not be replaced in an endless loop.
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        try:
            self._guard = GuardHandle(self._descriptors)
        except OSError:
            self._guard = None  # `take` raises it if it lasts

    def take(self) -> GuardHandle:
        """Return a guard, which is the caller's: the spare one, or a new one if there is none.

        Raises:
            OSError: It cannot be started.
        """
        is_there = self._is_there()
        guard, self._guard = self._guard, None
        self._retry_at = 0.0
        return guard if guard is not None and is_there else GuardHandle(self._descriptors)

    @override
    def close(self) -> None:
        """End the spare guard. Idempotent."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.destroy()  # it may be starting still, and has no command to end
            guard.close()

    def _is_there(self) -> bool:
        if self._guard is None:
            return False
        try:
            if self._guard.is_alive():
                return True
        except ChildProcessError:
            pass  # it cannot work here now, and has said why; `take` starts another one
        self.close()
        return False
