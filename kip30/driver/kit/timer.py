"""The thread that calls delayed actions, such as renewals of leases and retries."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

from kip30.driver.kit.thread_start import join_others, started
from kip30.errors import UnavailableError

Action = Callable[[], object]

_log: logging.Logger = logging.getLogger(__name__)


class ScheduledAction:
    """An action that will be called."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        """Schedule a call of *action*."""
        self.action: Action | None = action

    def cancel(self) -> None:
        """Cancel the call, unless it is running."""
        self.action = None


class Timer:
    """Calls actions at their time, on one thread. Thread-safe.

    An action neither waits nor raises. The thread stays until `stop`: a renewal must not depend on
    whether the system has a thread to spare when it is due. Without `start`, the first call of
    `after` starts it; while the system has none, each call of `after` tries again.
    """

    def __init__(self, name: str) -> None:
        """Schedule nothing yet; the thread is named *name*."""
        self._name = name
        # All of these are written under the condition.
        # A heap: when each action is due, by `time.monotonic`, a number, and the action. The number
        # keeps the order of actions that are due at once, and spares comparing them.
        self._due: list[tuple[float, int, ScheduledAction]] = []
        self._numbers = itertools.count()
        self._stopped = False
        # Started once; None before that, and while the system has none to spare.
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

    def after(self, seconds: float, action: Action) -> ScheduledAction | None:
        """Call *action* after *seconds*, or when this is stopped; None if it is already stopped."""
        due = ScheduledAction(action)
        with self._changed:
            if self._stopped:
                return None
            entry = (time.monotonic() + seconds, next(self._numbers), due)
            heapq.heappush(self._due, entry)
            if self._has_thread() and self._due[0] is entry:
                self._changed.notify_all()
        return due

    def every(self, seconds: float, action: Action) -> None:
        """Call *action* *seconds* after this call, and again after each call of it.

        It may raise, which is logged. `stop` ends this without calling it once more.
        """

        def call() -> None:
            # `stop` calls all that is due, and a repeated action belongs to the time before it.
            if self._stopped:
                return
            try:
                action()
            finally:
                self.after(seconds, call)

        self.after(seconds, call)

    def stop(self) -> None:
        """Call all actions now, and wait until the thread has ended unless this is called on it."""
        with self._changed:
            self._stopped = True
            due, self._due = self._due, []
            thread = self._thread
            self._changed.notify_all()
        # Without the condition: an action may call `after`.
        for _, _, one in due:
            if (action := one.action) is not None:
                action()
        join_others(thread)

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
            del action  # the thread stays, and must keep nothing alive

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
