"""The thread that does what is due later: renewing leases, trying again."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

from kip30.driver.kit.threads import started
from kip30.errors import UnavailableError

Action = Callable[[], None]

_log: logging.Logger = logging.getLogger(__name__)


class Due:
    """An action that will be called."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        """Have *action* to be called."""
        self.action: Action | None = action

    def cancel(self) -> None:
        """Have it neither called nor kept, unless it is called just now."""
        self.action = None


class Timer:
    """Calls actions at their time, on one thread. Thread-safe.

    An action neither waits nor raises. The thread stays until `stop`: a renewal must not depend on
    whether the system has a thread to spare when it is due. Without `start`, the first call of
    `after` starts it; while the system has none, each call of `after` tries again.
    """

    def __init__(self, name: str) -> None:
        """Have nothing to do; the thread is called *name*."""
        self._name = name
        self._due: list[tuple[float, int, Due]] = []
        self._numbers = itertools.count()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the thread, unless it runs.

        Raises:
            UnavailableError: The system has no thread to spare.
        """
        with self._changed:
            if not self._has_thread():
                raise UnavailableError(f"the system has no thread to spare for {self._name}")

    def after(self, seconds: float, action: Action) -> Due | None:
        """Call *action* in so many *seconds*, or when this is stopped; None if it is already."""
        due = Due(action)
        with self._changed:
            if self._stopped:
                return None
            entry = (time.monotonic() + seconds, next(self._numbers), due)
            heapq.heappush(self._due, entry)
            if self._has_thread() and self._due[0] is entry:
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

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread = thread if started(thread) else None
        return self._thread is not None

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001  a mistake, which must not end all other actions
                _log.exception("%s: an action raised", self._name)

    def _next(self) -> Action | None:
        """Wait for the next action; None once this is stopped."""
        with self._changed:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                    continue
                at, _, due = self._due[0]
                left = at - time.monotonic()
                if due.action is not None and left > 0:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._due)
                if (action := due.action) is not None:
                    return action
            return None
