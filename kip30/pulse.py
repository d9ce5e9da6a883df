"""The thread that does what is due later: renewing leases, trying again."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from kip30.threads import started

Action = Callable[[], None]


class Due:
    """An action that will be called."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        """Have *action* to be called."""
        self.action: Action | None = action

    def cancel(self) -> None:
        """Have it neither called nor kept, unless it is called just now."""
        self.action = None


class Pulse:
    """Calls actions at their time, on one thread that runs while there are any. Thread-safe.

    An action neither waits nor raises. While the system has no thread to spare, actions are late:
    each call of `after` tries to start one again.
    """

    def __init__(self, name: str) -> None:
        """Have nothing to do; the thread is called *name*."""
        self._name = name
        self._due: list[tuple[float, int, Due]] = []
        self._numbers = itertools.count()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def after(self, seconds: float, action: Action) -> Due | None:
        """Call *action* in so many *seconds*, or when this is stopped; None if it is already."""
        due = Due(action)
        with self._changed:
            if self._stopped:
                return None
            entry = (time.monotonic() + seconds, next(self._numbers), due)
            heapq.heappush(self._due, entry)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread = thread if started(thread) else None
            if self._due[0] is entry:
                self._changed.notify_all()
        return due

    def stop(self) -> None:
        """Call all actions now, and wait until the thread has ended unless this is called on it."""
        with self._changed:
            self._stopped = True
            due, self._due = self._due, []
            thread = self._thread
            self._changed.notify_all()
        for _, _, one in due:
            if (action := one.action) is not None:
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
                at, _, due = self._due[0]
                left = at - time.monotonic()
                if due.action is not None and left > 0:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._due)
                if (action := due.action) is not None:
                    return action
            self._thread = None
            return None
