"""Shares one watch per target among its listeners, and tracks what each has received.

Delivery is level-triggered: a subscription compares the newest state with the
last one it delivered, so states in between may be merged and the final one
always arrives.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Delta, Kind, Snapshot, Target
from kip30.runtime.call_gate import CallGate
from kip30.runtime.dispatcher import Dispatcher, Suspended, Task, suspended
from kip30.runtime.unreadable import UnreadableLog

E = TypeVar("E")
log: logging.Logger = logging.getLogger(__name__)

Describe = Callable[[Snapshot | None, Snapshot, frozenset[str] | None], E | None]
"""Makes an event from the last delivered state, None before the first, and the newest state.

The names are those where the two may differ; None if that is not known. It returns None if nothing
has changed that concerns its callback.
"""

_NAMES_KEPT = 1000
"""Number of changed names and steps that a feed remembers for listeners that lag behind."""


class Deltas:
    """Differences of the newest state of a target from those before it. Not thread-safe."""

    def __init__(self) -> None:
        """Start without a state."""
        # Without a gap: each begins no later than with the state at which the previous one ends.
        self._kept: deque[Delta] = deque()
        # The number of their names, plus one for each step: a step may have no names.
        self._size = 0
        self._order = -1

    def note(self, snapshot: Snapshot) -> None:
        """Record *snapshot* as the newest state."""
        delta = snapshot.delta
        if delta is None or delta.since > self._order:
            self._kept.clear()
            self._size = 0
        self._order = snapshot.order
        if delta is None:
            return
        self._kept.append(delta)
        self._size += 1 + len(delta.names)
        while self._size > _NAMES_KEPT:
            self._size -= 1 + len(self._kept.popleft().names)

    def since(self, order: int) -> frozenset[str] | None:
        """Return the names that may have changed since *order*; None if unknown."""
        if order == self._order:
            return frozenset()
        changed: frozenset[str] | None = None
        for delta in reversed(self._kept):
            changed = delta.names if changed is None else changed | delta.names
            if delta.since <= order:
                return changed
        return None


class FeedReader(Protocol):
    """A task that is notified of a new state, and then reads it."""

    def wake(self) -> None:
        """Look at the newest state soon. Any thread calls; must not block."""


class StateObserver(Protocol):
    """Looks at all states that the store sends. Its methods must not block."""

    def saw(self, target: Target, snapshot: Snapshot) -> None:
        """Note a state of *target*."""
        ...

    def unwatched(self, target: Target) -> None:
        """Note that *target* is not watched any longer."""
        ...


class Feed:
    """The newest known state of one target, shared by all its readers."""

    def __init__(self, saw: Callable[[Snapshot], object] | None = None) -> None:
        """Start without a state, and call *saw* with each one."""
        # The newest state. Written with `_deltas`, under the lock, by `take` alone.
        self.latest: Snapshot | None = None
        self.watch: Watch | None = None
        # A dict for its order: a thousand listeners of one target come and go.
        self.tasks: dict[FeedReader, None] = {}
        self._deltas = Deltas()
        self._saw = saw
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot) -> None:
        """Accept a state from the driver unless a newer one is known, and wake the readers."""
        with self._lock:
            if self.latest is not None and snapshot.order < self.latest.order:
                return
            self.latest = snapshot
            self._deltas.note(snapshot)
            tasks = list(self.tasks)
        if self._saw is not None:
            self._saw(snapshot)
        for task in tasks:
            task.wake()

    def newest(self, since: Snapshot | None) -> tuple[Snapshot | None, frozenset[str] | None]:
        """Return the newest state, and the names in which *since* may differ; None if unknown."""
        with self._lock:
            return self.latest, None if since is None else self._deltas.since(since.order)

    def shared(self, state: Snapshot, kind: Kind) -> Snapshot:
        """Return *state*, with the entries of the newest state if those are the same.

        Otherwise each of a thousand listeners would keep its own copy of its first state.
        """
        latest = self.latest
        if latest is None or latest.entries is state.entries:
            return state
        is_same = (
            latest.entries.keys() == state.entries.keys()
            if kind is Kind.NAMESPACE
            else latest.entries == state.entries
        )
        return state._replace(entries=latest.entries) if is_same else state

    def add(self, task: FeedReader) -> None:
        """Wake *task* from now on."""
        with self._lock:
            self.tasks[task] = None

    def remove(self, task: FeedReader) -> bool:
        """Stop waking *task*; return whether no task is left."""
        with self._lock:
            self.tasks.pop(task, None)
            return not self.tasks


class Subscriptions:
    """The feeds of one connection."""

    def __init__(self, driver: ObserveDriver, observer: StateObserver | None = None) -> None:
        """Watch through *driver*, and show *observer* each state."""
        self._driver = driver
        self._observer = observer
        self._feeds: dict[Target, Feed] = {}
        self._lock = threading.Lock()

    def attach(self, target: Target, task: FeedReader) -> Feed:
        """Wake *task* at every new state of *target*, beginning with the current one."""
        with self._lock:
            feed = self._feeds.get(target)
            if feed is None:
                observer = self._observer
                saw = None if observer is None else partial(observer.saw, target)
                feed = self._feeds[target] = Feed(saw)
            feed.add(task)
            if feed.watch is None:
                self._begin(target, feed)
        if feed.latest is not None:
            task.wake()
        return feed

    def _begin(self, target: Target, feed: Feed) -> None:
        try:
            feed.watch = self._driver.watch(target, feed.take)
        except BaseException:
            del self._feeds[target]
            raise

    def states(self) -> list[tuple[Target, Snapshot]]:
        """Return the newest state of each target of which one is known. Takes no lock."""
        feeds = list(self._feeds.items())
        return [(target, feed.latest) for target, feed in feeds if feed.latest is not None]

    def detach(self, target: Target, task: FeedReader) -> None:
        """Undo `attach`; when the last task leaves, the watch ends."""
        with self._lock:
            feed = self._feeds.get(target)
            if feed is None or not feed.remove(task):
                return
            del self._feeds[target]
        if feed.watch is not None:
            feed.watch.close()
        if self._observer is not None:
            self._observer.unwatched(target)


class Subscription(Generic[E]):
    """One callback on one target, called with the events that *describe* makes of its states."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        target: Target,
        describe: Describe[E],
        callback: Callable[[E], object],
        unreadable: UnreadableLog,
    ) -> None:
        """Deliver nothing until `prepare` and `start`; log skipped records through *unreadable*."""
        self.target = target
        self.failures: int = 0
        self._describe = describe
        self._callback = callback
        self._gate = CallGate(dispatcher.measure(target.kind.value))
        self._unreadable = unreadable
        self._delivered: Snapshot | None = None
        self._feed: Feed | None = None
        self._started = False
        name = f"listener of {target.kind.value}"
        self.task: Task = dispatcher.task(self._deliver, name, calls_back=True)

    def prepare(self, feed: Feed, baseline: Snapshot, *, initial: bool) -> None:
        """Prepare to deliver changes since *baseline*, and *baseline* itself if *initial*."""
        self._feed = feed
        # The newest known state: the feed may still lag behind it.
        self._newest = feed.shared(baseline, self.target.kind)
        self._delivered = None if initial else self._newest

    def start(self) -> None:
        """Deliver from now on."""
        self._started = True
        self.task.wake()

    def close(self) -> None:
        """Start no call of the callback after this returns."""
        self.task.close()
        self._gate.close()

    def _deliver(self) -> Suspended | None:
        """Deliver the newest state; if the callback continues elsewhere, return its future."""
        if not self._started or self._feed is None:
            return None
        newest, names = self._feed.newest(self._delivered)
        if newest is None or newest.order < self._newest.order:
            newest, names = self._newest, None
        self._newest = newest
        self._unreadable.note(self.target, newest.unreadable)
        if newest is self._delivered:
            return None
        event = self._describe(self._delivered, newest, names)
        self._delivered = newest
        return None if event is None or self.task.closed else self._call(event)

    def _call(self, event: E) -> Suspended | None:
        try:
            return suspended(self._gate.call(self._callback, event))
        except BaseException:  # later states must still be delivered
            self.failures += 1
            log.exception("a listener of %s raised", self.target)
            return None


class Registrar(Protocol):
    """Adds and removes the callbacks of one handle."""

    def remove_own(self, target: Target, callback: Callable[[Any], object]) -> bool:
        """Remove *callback* if it was added here; return whether it was."""
        ...


class Registrations:
    """The handles of one locator that have added each callback. Thread-safe.

    A handle may be dropped, and its callbacks are called all the same: another handle removes them.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._kept: dict[tuple[Target, Any], list[Registrar]] = {}
        self._lock = threading.Lock()

    def add(self, target: Target, callback: object, registrar: Registrar) -> None:
        """Note that *registrar* has added *callback*."""
        with self._lock:
            self._kept.setdefault((target, callback), []).append(registrar)

    def discard(self, target: Target, callback: object, registrar: Registrar) -> None:
        """Note that *registrar* has removed *callback*."""
        with self._lock:
            kept = self._kept.get((target, callback), [])
            if registrar in kept:
                kept.remove(registrar)
            if not kept:
                self._kept.pop((target, callback), None)

    def of(self, target: Target, callback: object) -> list[Registrar]:
        """Return all that have added *callback*."""
        with self._lock:
            return list(self._kept.get((target, callback), ()))
