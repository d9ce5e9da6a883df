"""One watch per observed thing, however many look at it, and what each has been told.

Delivery is level-triggered: a subscription compares the newest state with the
last one it delivered, so states in between may be merged and the final one
always arrives.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kip30.dispatch import Dispatcher, Suspended, Task, suspended
from kip30.driver import ObserveDriver, Watch
from kip30.records import Snapshot, Target

E = TypeVar("E")
log: logging.Logger = logging.getLogger(__name__)


class Feed:
    """The newest known state of one target, shared by all who look at it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.latest: Snapshot | None = None
        self.watch: Watch | None = None
        self.tasks: list[Task] = []
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot) -> None:
        """Accept a state from the driver unless a newer one is known, and wake who looks."""
        with self._lock:
            if self.latest is not None and snapshot.order < self.latest.order:
                return
            self.latest = snapshot
            tasks = list(self.tasks)
        for task in tasks:
            task.wake()

    def add(self, task: Task) -> None:
        """Wake *task* from now on."""
        with self._lock:
            self.tasks.append(task)

    def remove(self, task: Task) -> bool:
        """Stop waking *task*; say whether nobody looks any more."""
        with self._lock:
            if task in self.tasks:
                self.tasks.remove(task)
            return not self.tasks


class Observations:
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
    """One callback on one target.

    *describe* turns the last delivered and the newest snapshot into the event to
    deliver, or None when nothing happened that concerns this callback. The first
    argument is None for the initial state.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        target: Target,
        describe: Callable[[Snapshot | None, Snapshot], E | None],
        callback: Callable[[E], object],
    ) -> None:
        """Deliver nothing until `prepare` and `start`."""
        self.target = target
        self.failures: int = 0
        self._describe = describe
        self._callback = callback
        self._delivered: Snapshot | None = None
        self._feed: Feed | None = None
        self._started = False
        self.task: Task = dispatcher.task(self._deliver, f"listener of {target.kind.value}")

    def prepare(self, feed: Feed, baseline: Snapshot, *, initial: bool) -> None:
        """Be about to deliver what differs from *baseline*, and that itself if *initial*."""
        self._feed = feed
        self._baseline = baseline
        self._delivered = None if initial else baseline

    def start(self) -> None:
        """Deliver from now on."""
        self._started = True
        self.task.wake()

    def _deliver(self) -> Suspended | None:
        """Deliver the newest state; if the callback goes on elsewhere, return what ends then."""
        if not self._started or self._feed is None:
            return None
        newest = self._feed.latest
        if newest is None or newest.order < self._baseline.order:
            newest = self._baseline
        event = self._describe(self._delivered, newest)
        self._delivered = newest
        return None if event is None or self.task.closed else self._call(event)

    def _call(self, event: E) -> Suspended | None:
        try:
            return suspended(self._callback(event))
        except BaseException:  # the next states must be delivered all the same
            self.failures += 1
            log.exception("a listener of %s raised", self.target)
            return None
