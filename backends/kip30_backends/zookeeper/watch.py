"""Observing targets: armed on the server, read again at every event."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import ClosedError
from kip30_backends.zookeeper.client.protocol import AddWatch, RemoveWatches
from kip30_backends.zookeeper.request import Ask, Outbox, Steps
from kip30_backends.zookeeper.snapshots import States
from kip30_backends.zookeeper.tree import Tree

Sink = Callable[[Snapshot], None]
log: logging.Logger = logging.getLogger(__name__)

_UNTOLD = -1
_TRIES = 3
_MOST_CHANGED = 500
"""How many changed children are read on their own; of more, all are read."""


class ZookeeperWatch(Watch):
    """One observation, and the order of what was delivered last."""

    def __init__(self, sink: Sink, forget: Callable[["ZookeeperWatch"], None]) -> None:
        """Tell *sink*; call *forget* in the end."""
        self._sink = sink
        self._forget = forget
        self._order = _UNTOLD
        self._closed = False
        self._lock = threading.RLock()

    def tell(self, snapshot: Snapshot) -> None:
        """Hand *snapshot* on unless it is no news."""
        with self._lock:
            if not self._closed and snapshot.order > self._order:
                self._order = snapshot.order
                self._sink(snapshot)

    @override
    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._forget(self)


class Outlook:
    """One watched target. *busy* while it is read; *dirty* if that has to be done again."""

    def __init__(self, target: Target) -> None:
        """Know nothing of *target* yet."""
        self.target = target
        self.watches: list[ZookeeperWatch] = []
        self.armed = False
        self.busy = False
        self.dirty = True
        # The state that was read last; None if the next one is to be read as a whole.
        self.known: Snapshot | None = None
        # How often `invalidate` was called: a state that was read before is not kept.
        self.era = 0
        # The children of which events told since `known` was read. Changed under the lock.
        self.changed: set[str] = set()

    def invalidate(self) -> None:
        """Read the next state as a whole."""
        self.era += 1
        self.known = None

    @property
    def has_children(self) -> bool:
        """Whether events name the children of which the target consists."""
        return self.target.kind in {Kind.GROUP, Kind.NAMESPACE}


class Watches:
    """All watches of one backend. Thread-safe; sinks are called on the connection's thread."""

    def __init__(self, outbox: Outbox, states: States, tree: Tree) -> None:
        """Read by *states*. In an old *tree* every read leaves a one-shot watch behind."""
        self._outbox = outbox
        self._tree = tree
        self._states = states
        self._lock = threading.Lock()
        self._outlooks: dict[str, Outlook] = {}
        self._failed: set[str] = set()
        # How many connections there were.
        self._connections = 0
        self._closed = False

    def add(self, target: Target, sink: Sink) -> ZookeeperWatch:
        """Tell *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
        """
        path = self._states.watched(target)
        watch = ZookeeperWatch(sink, partial(self._forget, path))
        with self._lock:
            if self._closed:
                raise ClosedError("the backend is closed")
            outlook = self._outlooks.setdefault(path, Outlook(target))
            outlook.watches.append(watch)
            outlook.invalidate()
        self._look_at(path, outlook)
        return watch

    def connected(self) -> None:
        """Begin anew with all of them: a new connection has no watches."""
        with self._lock:
            self._connections += 1
            outlooks = list(self._outlooks.items())
            for _, outlook in outlooks:
                outlook.armed = False
                outlook.invalidate()
        for path, outlook in outlooks:
            self._look_at(path, outlook)

    def happened(self, path: str, *, is_data: bool) -> None:
        """Look again at what an event at *path* is about; *is_data* if its data has changed."""
        outlook = self._outlooks.get(path)
        if outlook is not None and self._concerns(outlook, is_data=is_data):
            outlook.invalidate()
            self._look_at(path, outlook)
        above, _, name = path.rpartition("/")
        outlook = self._outlooks.get(above)
        if outlook is not None and self._concerns(outlook, is_data=is_data):
            with self._lock:
                outlook.changed.add(name)
            self._look_at(above, outlook)

    def _concerns(self, outlook: Outlook, *, is_data: bool) -> bool:
        """Say whether an event is news: data does not change a set of keys.

        But any event uses up the watch of an older server.
        """
        return not (is_data and self._tree.modern and outlook.target.kind is Kind.NAMESPACE)

    def retry(self) -> None:
        """Look again at what could not be read."""
        with self._lock:
            failed, self._failed = self._failed, set()
            outlooks = [(path, self._outlooks[path]) for path in failed if path in self._outlooks]
        for path, outlook in outlooks:
            self._look_at(path, outlook)

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            self._closed = True
            watches = [watch for outlook in self._outlooks.values() for watch in outlook.watches]
        for watch in watches:
            watch.close()

    def _look_at(self, path: str, outlook: Outlook) -> None:
        with self._lock:
            outlook.dirty = True
            if outlook.busy:
                return
            outlook.busy = True
        self._look(path, outlook)

    def _look(self, path: str, outlook: Outlook) -> None:
        future = self._outbox.tend(self._steps(path, outlook))
        future.add_done_callback(partial(self._looked, path, outlook))

    def _steps(self, path: str, outlook: Outlook) -> Steps[Snapshot]:
        outlook.dirty = False
        era = outlook.era
        if self._tree.modern and not outlook.armed:
            (yield Ask((AddWatch(path, outlook.has_children),), fresh=False)).only()
            outlook.armed = True
        state = yield from self._changed(outlook, era)
        if state is None:
            with self._lock:
                outlook.changed = set()
            state = yield from self._states.read(outlook.target, watch=not self._tree.modern)
        if era == outlook.era:
            outlook.known = state
        return state

    def _changed(self, outlook: Outlook, era: int) -> Steps[Snapshot | None]:
        """Read only what events were about, if that is enough; None if it is not.

        An answer may be newer than events that come before it: another reader may have seen what
        those are about. So the state is complete only if none came meanwhile.
        """
        state = outlook.known if self._tree.modern and outlook.has_children else None
        for _ in range(_TRIES):
            if state is None or era != outlook.era or len(outlook.changed) > _MOST_CHANGED:
                return None
            if not outlook.changed:
                return state
            with self._lock:
                nodes, outlook.changed = outlook.changed, set()
            state = yield from self._states.changed(outlook.target, state, nodes)
        return state if era == outlook.era and not outlook.changed else None

    def _looked(self, path: str, outlook: Outlook, future: Future[Snapshot]) -> None:
        error = future.exception()
        if error is None:
            for watch in list(outlook.watches):
                watch.tell(future.result())
        elif not isinstance(error, ClosedError):
            outlook.invalidate()
            log.info("retrying watch of %s after: %s", path, str(error))
        self._next(path, outlook, failed=error is not None)

    def _next(self, path: str, outlook: Outlook, *, failed: bool) -> None:
        with self._lock:
            again = outlook.dirty and bool(outlook.watches) and not failed
            outlook.busy = again
            if failed and outlook.watches:
                self._failed.add(path)
        if again:
            self._look(path, outlook)
        elif not outlook.watches:
            self._disarm(path, outlook)

    def _forget(self, path: str, watch: ZookeeperWatch) -> None:
        with self._lock:
            outlook = self._outlooks.get(path)
            if outlook is None or watch not in outlook.watches:
                return
            outlook.watches.remove(watch)
            if outlook.watches:
                return
            del self._outlooks[path]
            idle = not outlook.busy
        if idle:
            self._disarm(path, outlook)

    def _disarm(self, path: str, outlook: Outlook) -> None:
        """Have the server tell no more of *path*, unless someone has begun to watch it again."""
        with self._lock:
            armed, outlook.armed = outlook.armed, False
            if not armed or path in self._outlooks or self._closed:
                return
            removed = self._outbox.tend(_remove(path))
            sent_on = self._connections
        removed.add_done_callback(partial(self._disarmed, path, sent_on))

    def _disarmed(self, path: str, sent_on: int, _: Future[None]) -> None:
        """Arm *path* again if it is watched by now, and a later connection has ended its watch.

        What a connection did not answer is sent again behind what was posted since.
        """
        with self._lock:
            outlook = self._outlooks.get(path)
            if outlook is None or sent_on == self._connections or self._closed:
                return
            outlook.armed = False
            outlook.invalidate()
        self._look_at(path, outlook)


def _remove(path: str) -> Steps[None]:
    yield Ask((RemoveWatches(path),), fresh=False)


class ZookeeperObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, outbox: Outbox, states: States, watches: Watches) -> None:
        """Read by *states*; *watches* tell of changes."""
        self._outbox = outbox
        self._states = states
        self._watches = watches

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._outbox.start(self._states.read(target, fresh=True))

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._watches.add(target, sink)
