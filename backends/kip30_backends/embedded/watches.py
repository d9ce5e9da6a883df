"""The running observations of one backend, and telling them what has changed."""

import threading
from collections.abc import Callable

from typing_extensions import override

from kip30.driver import Watch
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.embedded.faults import Faults
from kip30_backends.embedded.states import States

Sink = Callable[[Snapshot], None]

_UNTOLD = -1


class EmbeddedWatch(Watch):
    """One observation, and the order of what it was told last."""

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
    """All watches of one backend, told by one thread. Adding and closing is thread-safe."""

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
        """Read what has changed and tell whoever watches it.

        If that fails half-way, the next call begins again; nobody is told twice.
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
        """In a forked child: nobody is told anything here."""
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
