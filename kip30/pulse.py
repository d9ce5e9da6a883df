"""The thread that does what is due later: renewing leases, trying again."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

Action = Callable[[], None]


class Pulse:
    """Calls actions at their time, on one thread that runs while there are any. Thread-safe.

    An action neither waits nor raises.
    """

    def __init__(self, name: str) -> None:
        """Have nothing to do; the thread is called *name*."""
        self._name = name
        self._due: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def after(self, seconds: float, action: Action) -> bool:
        """Call *action* in so many *seconds*, or when this is stopped; false if it is already."""
        with self._changed:
            if self._stopped:
                return False
            due = (time.monotonic() + seconds, next(self._numbers), action)
            heapq.heappush(self._due, due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            if self._due[0] is due:
                self._changed.notify_all()
        return True

    def stop(self) -> None:
        """Call all actions now, and wait until the thread has ended unless this is called on it."""
        with self._changed:
            self._stopped = True
            due, self._due = self._due, []
            thread = self._thread
            self._changed.notify_all()
        for _, _, action in due:
            action()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            action()

    def _next(self) -> Action | None:
        """Wait for the next action; None if there is none."""
        with self._changed:
            while self._due:
                left = self._due[0][0] - time.monotonic()
                if left <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left)
            self._thread = None
            return None
