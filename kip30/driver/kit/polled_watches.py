"""Watches of a store whose notifications do not say what changed: every target is read."""

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.thread_start import join_others, started
from kip30.driver.kit.watch import NOTHING_DELIVERED, Sink, WatchHandle
from kip30.driver.records import Snapshot, Target
from kip30.errors import ClosedError, Kip30Error, UnavailableError

_log = logging.getLogger(__name__)

_LONGEST_WAIT = 5.0
_RETRY_WAIT = 0.5


class PolledWatches:
    """All watches of one backend, and the thread that reads what they observe. Thread-safe.

    After any change all targets are read, each once for all of its watches: the cost of a change is
    that of as many reads as there are targets. The first state of a watch is read by the pool, so
    that it need not wait for a change.
    """

    def __init__(
        self,
        name: str,
        calls: BlockingCalls,
        *,
        read: Callable[[Target], Snapshot],
        wait: Callable[[float], object],
    ) -> None:
        """Start no thread before there is a watch.

        Args:
            name: Of the thread.
            calls: Those of the backend.
            read: Returns the state of a target as of now.
            wait: Returns once something has changed since its last return, or after that many
                seconds. A change between two calls must end the second one at once, or it would be
                missed while targets are read. It raises one of kip30's errors while the store
                cannot be reached, and at once when the backend closes.
        """
        self._name = name
        self._calls = calls
        self._read = read
        self._wait = wait
        # All of these are written under the lock.
        self._watches: dict[Target, list[WatchHandle]] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def add(self, target: Target, sink: Sink) -> WatchHandle:
        """Deliver states of *target* to *sink* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
            UnavailableError: The system has no thread to spare.
        """
        self._calls.gate.check()
        watch = WatchHandle(target, sink, self._forget)
        with self._lock:
            if self._stopped:
                raise ClosedError(CLOSED)
            self._need_thread()
            self._watches.setdefault(target, []).append(watch)
        # After it was added: the thread delivers every change from now on.
        try:
            self._calls.pool.do(partial(self._refresh, [target]))
        except Kip30Error:
            _log.info("the first state of %s is read later", target)
        return watch

    def stop(self) -> None:
        """Close all watches, and accept no more. `join` waits for the thread."""
        with self._lock:
            self._stopped = True
            watches = [watch for some in self._watches.values() for watch in some]
        self._stopping.set()
        for watch in watches:
            watch.close()

    def join(self) -> None:
        """Wait until the thread has ended, unless this is called on it."""
        join_others(self._thread)

    def _need_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            if not started(thread):
                raise UnavailableError("the system has no thread to spare for watches")
            self._thread = thread

    def _run(self) -> None:
        is_up_to_date = True
        while not self._stopping.is_set():
            try:
                # The failed read may be of the only change: no later change would trigger it.
                is_late = not is_up_to_date or self._lacks_first_state()
                self._wait(_RETRY_WAIT if is_late else _LONGEST_WAIT)
            except Exception as error:  # noqa: BLE001  or delivery would stop
                self._note("watches", error)
                self._stopping.wait(_RETRY_WAIT)
            is_up_to_date = self._refresh(list(self._watches))

    def _refresh(self, targets: Iterable[Target]) -> bool:
        """Read *targets* and deliver their states; false if one of them must be retried."""
        is_done = True
        for target in targets:
            if self._stopping.is_set():
                break
            try:
                state = self._read(target)
            except Exception as error:  # noqa: BLE001  one target must not keep others from theirs
                self._note(str(target), error)
                is_done = False
            else:
                is_done = self._deliver(state, target) and is_done
        return is_done

    def _deliver(self, state: Snapshot, target: Target) -> bool:
        """Deliver *state* to all watches of *target*; false if a sink has raised."""
        is_done = True
        for watch in list(self._watches.get(target, ())):
            try:
                watch.deliver(state)
            except Exception as error:  # noqa: BLE001  one sink must not keep others from theirs
                self._note(str(target), error)
                is_done = False
        return is_done

    def _lacks_first_state(self) -> bool:
        with self._lock:
            watches = [watch for some in self._watches.values() for watch in some]
        return any(watch.order == NOTHING_DELIVERED for watch in watches)

    def _forget(self, watch: WatchHandle) -> None:
        with self._lock:
            others = [one for one in self._watches.get(watch.target, []) if one is not watch]
            if others:
                self._watches[watch.target] = others
            else:
                self._watches.pop(watch.target, None)

    def _note(self, what: str, error: Exception) -> None:
        if self._stopping.is_set():
            return
        if isinstance(error, Kip30Error):
            _log.info("retrying %s after: %s", what, error)
        else:
            _log.error("retrying %s after an unexpected error", what, exc_info=error)
