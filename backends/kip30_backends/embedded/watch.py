"""Observing targets, and the thread that notices what has changed.

It runs while there is a session or a watch, and removes dead sessions. None of its steps waits for
long, so none delays the others. Another thread renews the session (`session.Renewal`).
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.kit.threads import started
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.embedded.change_signal import SignalReader
from kip30_backends.embedded.faults import Faults
from kip30_backends.embedded.liveness import LivenessCheck
from kip30_backends.embedded.request import Answers
from kip30_backends.embedded.session import Sessions
from kip30_backends.embedded.snapshots import States

Sink = Callable[[Snapshot], None]

_UNTOLD = -1


class EmbeddedWatch(Watch):
    """One observation, and the order of what was delivered last."""

    def __init__(
        self, target: Target, sink: Sink, forget: Callable[["EmbeddedWatch"], None]
    ) -> None:
        """Tell *sink* of *target*; call *forget* in the end."""
        self.target = target
        self.order = _UNTOLD
        self._sink = sink
        self._forget = forget
        self._closed = False
        self._lock = threading.RLock()

    def tell(self, snapshot: Snapshot) -> None:
        """Hand *snapshot* on unless it is no news."""
        with self._lock:
            if not self._closed and snapshot.order > self.order:
                self.order = snapshot.order
                self._sink(snapshot)

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)


class Watches:
    """All watches of one backend, notified by one thread. Adding and closing is thread-safe."""

    def __init__(self, states: States, faults: Faults) -> None:
        """Read from *states*; be deaf while *faults* say so."""
        self._states = states
        self._faults = faults
        self._by_target: dict[Target, list[EmbeddedWatch]] = {}
        self._untold: set[EmbeddedWatch] = set()
        # The state of each watched target as of `_seen`, but for those not read yet. Changed
        # under the lock: by `_tell_of`, and by `_forget` when the last watch of one is closed.
        self._told: dict[Target, Snapshot] = {}
        self._on_claims = 0
        self._seen = _UNTOLD
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self._by_target)

    @property
    def on_claims(self) -> bool:
        """Whether any is of a group or a service, which change when a session dies."""
        return self._on_claims > 0

    def add(self, target: Target, sink: Sink) -> EmbeddedWatch:
        """Tell *sink* of *target* from the next `tell` on."""
        self._states.check()
        watch = EmbeddedWatch(target, sink, self._forget)
        with self._lock:
            self._by_target.setdefault(target, []).append(watch)
            self._on_claims += _is_claim(target)
            self._untold.add(watch)
        return watch

    def tell(self) -> None:
        """Read what has changed and notify its watches.

        If that fails half-way, the next call begins again; no watch is notified twice.
        """
        with self._faults.telling:
            if not self._faults.watches_paused and self._by_target:
                self._tell()

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            watches = [watch for group in self._by_target.values() for watch in group]
        for watch in watches:
            watch.close()

    def abandon(self) -> None:
        """In a forked child: nothing is delivered here."""
        self._lock = threading.Lock()
        self._by_target = {}
        self._told = {}

    def _tell(self) -> None:
        with self._lock:
            fresh = [watch.target for watch in self._untold]
        news = self._states.news(self._seen, self._told, fresh)
        for target, state in news.states.items():
            self._tell_of(target, state)
        self._seen = news.rev
        with self._lock:
            self._untold = {watch for watch in self._untold if watch.order == _UNTOLD}

    def _tell_of(self, target: Target, state: Snapshot) -> None:
        with self._lock:
            watches = list(self._by_target.get(target, ()))
            if not watches:
                return
            self._told[target] = state
        for watch in watches:
            watch.tell(state)

    def _forget(self, watch: EmbeddedWatch) -> None:
        with self._lock:
            group = self._by_target.get(watch.target, [])
            if watch not in group:
                return
            group.remove(watch)
            self._untold.discard(watch)
            self._on_claims -= _is_claim(watch.target)
            if not group:
                del self._by_target[watch.target]
                self._told.pop(watch.target, None)


def _is_claim(target: Target) -> bool:
    return target.kind in {Kind.GROUP, Kind.SERVICE}


_log = logging.getLogger(__name__)

_LONGEST = 0.25
_AFTER_TROUBLE = 0.02


class WatchThread:
    """Starts, feeds and ends the thread. Thread-safe."""

    def __init__(
        self,
        make_ear: Callable[[], SignalReader],
        sessions: Sessions,
        watches: Watches,
        liveness_check: LivenessCheck,
    ) -> None:
        """Listen with what *make_ear* returns, for as long as there is something to do."""
        self._make_ear = make_ear
        self._sessions = sessions
        self._watches = watches
        self._liveness_check = liveness_check
        self._stopped = False
        self._orphaned: Callable[[], None] | None = None
        self._reader: SignalReader | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Have the thread look at what there is to do, starting it if there is none.

        Raises:
            ClosedError: The backend is closed.
            UnavailableError: There is no thread, and the system has none to spare.
        """
        with self._lock:
            if self._stopped:
                raise ClosedError("the backend is closed")
            if self._reader is not None:
                self._reader.wake()
                return
            self._start(self._make_ear())

    def stop(self) -> None:
        """End the thread and wait until it has ended, unless this is called on it."""
        with self._lock:
            self._stopped = True
            thread = self._thread
            if self._reader is not None:
                self._reader.wake()
        if thread is not None and not self.is_this_thread():
            thread.join()

    def is_this_thread(self) -> bool:
        """Say whether the caller is the thread."""
        return self._thread is threading.current_thread()

    def leave_orphaned(self, close: Callable[[], None]) -> bool:
        """Have the thread call *close* and end; say whether there is a thread to do it."""
        with self._lock:
            self._orphaned = close
            if self._reader is not None:
                self._reader.wake()
            return self._reader is not None

    def abandon(self) -> None:
        """In a forked child: there is no thread here."""
        self._lock = threading.Lock()
        self._stopped = True
        reader, self._reader, self._thread = self._reader, None, None
        if reader is not None:
            reader.close()

    def _start(self, reader: SignalReader) -> None:
        try:
            self._reader = reader
            self._thread = threading.Thread(
                target=self._run, args=(reader,), name="kip30-embedded", daemon=True
            )
            running = started(self._thread)
        except BaseException:  # such as KeyboardInterrupt
            self._give_up(reader)
            raise
        if not running:
            self._give_up(reader)
            raise UnavailableError("the system has no thread to spare: nothing was done")

    def _give_up(self, reader: SignalReader) -> None:
        """Have no thread. If it runs all the same, it ends before it uses *reader* (`_goes_on`)."""
        self._reader = self._thread = None
        reader.close()

    def _run(self, reader: SignalReader) -> None:
        closed: Collection[str] | None = None
        while self._goes_on(reader):
            well = self._beat(closed, reader)
            closed = reader.wait(self._pause(reader) if well else _AFTER_TROUBLE)

    def _goes_on(self, reader: SignalReader) -> bool:
        if self._orphaned is not None:
            self._orphaned()
        with self._lock:
            busy = self._sessions.session is not None or self._watches
            is_the_thread = self._reader is reader
            if is_the_thread and busy and not self._stopped:
                return True
            if is_the_thread:
                self._reader = self._thread = None
            reader.close()
        return False

    def _beat(self, closed: Collection[str] | None, reader: SignalReader) -> bool:
        well = True
        if self._watches.on_claims:
            well = self._try(lambda: self._liveness_check.look(closed, reader.look_seconds))
        return self._try(self._watches.tell) and well

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except (Kip30Error, sqlite3.Error, OSError):
            _log.debug("trying again soon", exc_info=True)
            return False
        except Exception:  # noqa: BLE001  one bad callback must not end the leases of all
            _log.exception("a sink or a lease callback raised")
        return True

    def _pause(self, reader: SignalReader) -> float:
        pauses = [_LONGEST]
        if self._watches:
            pauses.append(reader.look_seconds)
        if self._watches.on_claims:
            pauses.append(self._liveness_check.seconds_to_look())
        return max(0.0, min(pauses))


class EmbeddedObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(
        self, states: States, watches: Watches, watch_thread: WatchThread, answers: Answers
    ) -> None:
        """Read from *states*; *watch_thread* notifies *watches*."""
        self._states = states
        self._watches = watches
        self._watch_thread = watch_thread
        self._answers = answers

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._answers.give(
            "observe.snapshot", target.scope, lambda: self._states.current(target)
        )

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        watch = self._watches.add(target, sink)
        try:
            self._watch_thread.wake()
        except BaseException:
            watch.close()
            raise
        return watch
