"""One watch per target, however many listeners it has, and what each has received.

Delivery is level-triggered: a subscription compares the newest state with the
last one it delivered, so states in between may be merged and the final one
always arrives.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Delta, Kind, Snapshot, Target
from kip30.runtime.dispatcher import Dispatcher, Suspended, Task, suspended
from kip30.runtime.unreadable import UnreadableLog

E = TypeVar("E")
log: logging.Logger = logging.getLogger(__name__)

Describe = Callable[[Snapshot | None, Snapshot, frozenset[str] | None], E | None]
"""Makes an event of the state delivered last, None before the first, and of the newest state.

The names are those where the two may differ; None if that is not known. It answers None if nothing
has happened that concerns its callback.
"""

_NAMES_KEPT = 1000
"""How many changed names a feed remembers, and steps, for listeners that are behind."""


class Deltas:
    """Where the newest state of a target differs from those before it. Not thread-safe."""

    def __init__(self) -> None:
        """Know of no state."""
        # Without a gap: each begins at the latest with the state at which the one before it ends.
        self._kept: deque[Delta] = deque()
        # How many names they have, and one more for each: a step may have none.
        self._size = 0
        self._order = -1

    def note(self, snapshot: Snapshot) -> None:
        """Take *snapshot* for the newest state."""
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
        """Return where states from *order* on may differ from the newest; None if unknown."""
        if order == self._order:
            return frozenset()
        changed: frozenset[str] | None = None
        for delta in reversed(self._kept):
            changed = delta.names if changed is None else changed | delta.names
            if delta.since <= order:
                return changed
        return None


class Feed:
    """The newest known state of one target, shared by all who look at it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        # The newest state. Written with `_deltas`, under the lock, by `take` alone.
        self.latest: Snapshot | None = None
        self.watch: Watch | None = None
        # A dict for its order: a thousand listeners of one target come and go.
        self.tasks: dict[Task, None] = {}
        self._deltas = Deltas()
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot) -> None:
        """Accept a state from the driver unless a newer one is known, and wake who looks."""
        with self._lock:
            if self.latest is not None and snapshot.order < self.latest.order:
                return
            self.latest = snapshot
            self._deltas.note(snapshot)
            tasks = list(self.tasks)
        for task in tasks:
            task.wake()

    def newest(self, since: Snapshot | None) -> tuple[Snapshot | None, frozenset[str] | None]:
        """Return the newest state, and where it may differ from *since*; None if unknown."""
        with self._lock:
            return self.latest, None if since is None else self._deltas.since(since.order)

    def shared(self, state: Snapshot, kind: Kind) -> Snapshot:
        """Return *state*, with the entries of the newest state if those are the same.

        Each of a thousand listeners reads the state that it begins with, and would keep a copy.
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

    def add(self, task: Task) -> None:
        """Wake *task* from now on."""
        with self._lock:
            self.tasks[task] = None

    def remove(self, task: Task) -> bool:
        """Stop waking *task*; say whether no task is left."""
        with self._lock:
            self.tasks.pop(task, None)
            return not self.tasks


class Subscriptions:
    """The feeds of one connection."""

    def __init__(self, driver: ObserveDriver) -> None:
        """Watch through *driver*."""
        self._driver = driver
        self._feeds: dict[Target, Feed] = {}
        self._lock = threading.Lock()

    def attach(self, target: Target, task: Task) -> Feed:
        """Wake *task* at every new state of *target*, beginning with the current one."""
        with self._lock:
            feed = self._feeds.get(target)
            if feed is None:
                feed = self._feeds[target] = Feed()
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

    def detach(self, target: Target, task: Task) -> None:
        """Undo `attach`; the last one to leave ends the watch."""
        with self._lock:
            feed = self._feeds.get(target)
            if feed is None or not feed.remove(task):
                return
            del self._feeds[target]
        if feed.watch is not None:
            feed.watch.close()


class Subscription(Generic[E]):
    """One callback on one target, which hears of what *describe* makes of its states."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        target: Target,
        describe: Describe[E],
        callback: Callable[[E], object],
        unreadable: UnreadableLog,
    ) -> None:
        """Deliver nothing until `prepare` and `start`; log by *unreadable* what is left out."""
        self.target = target
        self.failures: int = 0
        self._describe = describe
        self._callback = callback
        self._unreadable = unreadable
        self._delivered: Snapshot | None = None
        self._feed: Feed | None = None
        self._started = False
        self.task: Task = dispatcher.task(self._deliver, f"listener of {target.kind.value}")

    def prepare(self, feed: Feed, baseline: Snapshot, *, initial: bool) -> None:
        """Be about to deliver what differs from *baseline*, and that itself if *initial*."""
        self._feed = feed
        # The newest state known: the feed may not have got as far yet.
        self._newest = feed.shared(baseline, self.target.kind)
        self._delivered = None if initial else self._newest

    def start(self) -> None:
        """Deliver from now on."""
        self._started = True
        self.task.wake()

    def _deliver(self) -> Suspended | None:
        """Deliver the newest state; if the callback goes on elsewhere, return what ends then."""
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
            return suspended(self._callback(event))
        except BaseException:  # the next states must be delivered all the same
            self.failures += 1
            log.exception("a listener of %s raised", self.target)
            return None
