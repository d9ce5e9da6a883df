"""Observing targets: watched on the server, read again at every event."""

import logging
import threading
from concurrent.futures import Future
from functools import partial

from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.watch import Sink, WatchHandle
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import ClosedError
from kip30_backends.zookeeper.calls import Outbox, RequestBatch, Steps
from kip30_backends.zookeeper.client.messages import AddWatch, Event, RemoveWatches
from kip30_backends.zookeeper.target_states import TargetStates
from kip30_backends.zookeeper.tree import Tree

log: logging.Logger = logging.getLogger(__name__)

_TRIES = 3
_MOST_CHANGED = 500
"""Maximum number of changed children that are read on their own; of more, all are read."""


class WatchedTarget:
    """One watched target. *busy* while it is read; *dirty* if that has to be done again."""

    def __init__(self, target: Target) -> None:
        """Start without a state of *target*."""
        self.target = target
        # Changed under the lock of `Watches`.
        self.watches: list[WatchHandle] = []
        # Whether the server of this connection notifies of changes, as those from 3.6 on do. Set by
        # a read, and reset by another connection or the end of the last watch.
        self.armed = False
        self.busy = False
        self.dirty = True
        # The state that was read last; None if the next one is to be read as a whole.
        self.known: Snapshot | None = None
        # How often `invalidate` was called: a state that was read before is not kept.
        self.era = 0
        # The children with events since `known` was read. Changed under the lock.
        self.changed: set[str] = set()

    def invalidate(self) -> None:
        """Read the next state as a whole."""
        self.era += 1
        self.known = None

    @property
    def has_children(self) -> bool:
        """True if events name the children of which the target consists."""
        return self.target.kind in {Kind.GROUP, Kind.NAMESPACE}


class Watches:
    """All watches of one backend. Thread-safe; sinks are called on the connection's thread."""

    def __init__(self, outbox: Outbox, states: TargetStates, tree: Tree) -> None:
        """Read with *states*. In an old *tree* every read leaves a one-shot watch behind."""
        self._outbox = outbox
        self._tree = tree
        self._states = states
        self._lock = threading.Lock()
        # The watched targets by the paths of their nodes, and the paths to be read again after a
        # failure.
        self._watched: dict[str, WatchedTarget] = {}
        self._failed: set[str] = set()
        # How many connections there were.
        self._connections = 0
        self._closed = False

    def add(self, target: Target, sink: Sink) -> WatchHandle:
        """Notify *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
        """
        path = self._states.watched(target)
        watch = WatchHandle(target, sink, partial(self._forget, path))
        with self._lock:
            if self._closed:
                raise ClosedError(CLOSED)
            watched = self._watched.setdefault(path, WatchedTarget(target))
            watched.watches.append(watch)
            watched.invalidate()
        self._look_at(path, watched)
        return watch

    def connected(self) -> None:
        """Restart all of them: a new connection has no watches."""
        with self._lock:
            self._connections += 1
            all_watched = list(self._watched.items())
            for _, watched in all_watched:
                watched.armed = False
                watched.invalidate()
        for path, watched in all_watched:
            self._look_at(path, watched)

    def happened(self, event: Event, order: int) -> None:
        """Read the target of *event* again, unless the event says all; *order* is its own."""
        path, is_data = event.path, event.is_data
        watched = self._watched.get(path)
        if watched is not None and self._concerns(watched, is_data=is_data):
            watched.invalidate()
            says_all = event.is_deletion and self._says_all(watched)
            if not (says_all and self._try_to_deliver(watched, Snapshot(order, {}))):
                self._look_at(path, watched)
        above, _, name = path.rpartition("/")
        watched = self._watched.get(above)
        if watched is not None and self._concerns(watched, is_data=is_data):
            with self._lock:
                watched.changed.add(name)
            self._look_at(above, watched)

    def _concerns(self, watched: WatchedTarget, *, is_data: bool) -> bool:
        """Return whether an event is news: data does not change a set of keys.

        But any event uses up the watch of an older server.
        """
        return not (is_data and self._tree.modern and watched.target.kind is Kind.NAMESPACE)

    def _says_all(self, watched: WatchedTarget) -> bool:
        """Return whether the deletion of its node is the whole state of a target.

        The server sends events and answers in the order of its transactions, so no answer before
        the event is newer, and a node that is created again has an event of its own. With a read
        after each deletion, a candidate would claim a round trip later. On older servers the read
        also watches again.
        """
        return self._tree.modern and not watched.has_children

    def retry(self) -> None:
        """Retry the reads that failed."""
        with self._lock:
            failed, self._failed = self._failed, set()
            all_watched = [(path, self._watched[path]) for path in failed if path in self._watched]
        for path, watched in all_watched:
            self._look_at(path, watched)

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            self._closed = True
            watches = [watch for watched in self._watched.values() for watch in watched.watches]
        for watch in watches:
            watch.close()

    def _look_at(self, path: str, watched: WatchedTarget) -> None:
        with self._lock:
            watched.dirty = True
            if watched.busy:
                return
            watched.busy = True
        self._look(path, watched)

    def _look(self, path: str, watched: WatchedTarget) -> None:
        future = self._outbox.tend(self._steps(path, watched))
        future.add_done_callback(partial(self._looked, path, watched))

    def _steps(self, path: str, watched: WatchedTarget) -> Steps[Snapshot]:
        watched.dirty = False
        era = watched.era
        if self._tree.modern and not watched.armed:
            (yield RequestBatch((AddWatch(path, watched.has_children),), fresh=False)).only()
            watched.armed = True
        state = yield from self._changed(watched, era)
        if state is None:
            with self._lock:
                watched.changed = set()
            state = yield from self._states.read(watched.target, watch=not self._tree.modern)
        if era == watched.era:
            watched.known = state
        return state

    def _changed(self, watched: WatchedTarget, era: int) -> Steps[Snapshot | None]:
        """Read only the children with events, if that is enough; None if it is not.

        An answer may be newer than events that arrive before it: another reader may have seen their
        changes. So the state is complete only if no event arrived meanwhile.
        """
        state = watched.known if self._tree.modern and watched.has_children else None
        for _ in range(_TRIES):
            if state is None or era != watched.era or len(watched.changed) > _MOST_CHANGED:
                return None
            if not watched.changed:
                return state
            with self._lock:
                nodes, watched.changed = watched.changed, set()
            state = yield from self._states.changed(watched.target, state, nodes)
        return state if era == watched.era and not watched.changed else None

    def _looked(self, path: str, watched: WatchedTarget, future: Future[Snapshot]) -> None:
        error = future.exception()
        if error is None:
            is_done = self._try_to_deliver(watched, future.result())
        else:
            is_done = False
            if not isinstance(error, ClosedError):
                watched.invalidate()
                log.info("retrying watch of %s after: %s", path, str(error))
        self._next(path, watched, failed=not is_done)

    def _try_to_deliver(self, watched: WatchedTarget, state: Snapshot) -> bool:
        """Deliver *state*; return whether no sink raised. The next read retries it."""
        is_done = True
        for watch in list(watched.watches):
            try:
                watch.deliver(state)
            except Exception:
                log.exception("the watch of %s goes on", watched.target)
                is_done = False
        return is_done

    def _next(self, path: str, watched: WatchedTarget, *, failed: bool) -> None:
        with self._lock:
            again = watched.dirty and bool(watched.watches) and not failed
            watched.busy = again
            if failed and watched.watches:
                self._failed.add(path)
        if again:
            self._look(path, watched)
        elif not watched.watches:
            self._disarm(path, watched)

    def _forget(self, path: str, watch: WatchHandle) -> None:
        with self._lock:
            watched = self._watched.get(path)
            if watched is None or watch not in watched.watches:
                return
            watched.watches.remove(watch)
            if watched.watches:
                return
            del self._watched[path]
            idle = not watched.busy
        if idle:
            self._disarm(path, watched)

    def _disarm(self, path: str, watched: WatchedTarget) -> None:
        """Stop the server's notifications of *path*, unless it is watched again."""
        with self._lock:
            armed, watched.armed = watched.armed, False
            if not armed or path in self._watched or self._closed:
                return
            removed = self._outbox.tend(_remove(path))
            sent_on = self._connections
        removed.add_done_callback(partial(self._disarmed, path, sent_on))

    def _disarmed(self, path: str, sent_on: int, _: Future[None]) -> None:
        """Watch *path* again if it is needed, and a later connection has ended its watch.

        What a connection did not answer is sent again behind what was posted since.
        """
        with self._lock:
            watched = self._watched.get(path)
            if watched is None or sent_on == self._connections or self._closed:
                return
            watched.armed = False
            watched.invalidate()
        self._look_at(path, watched)


def _remove(path: str) -> Steps[None]:
    yield RequestBatch((RemoveWatches(path),), fresh=False)
