"""The running observations of one backend, and what each has been told."""

import threading
from collections import Counter
from collections.abc import Callable

from typing_extensions import override

from kip30.driver import Watch
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.departed import Departed
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.few import Few
from kip30_backends.cassandra.namespace_polls import NamespacePoll
from kip30_backends.cassandra.orders import Orders
from kip30_backends.cassandra.polls import Poll, Rhythm, WholePoll
from kip30_backends.cassandra.states import States

Sink = Callable[[Snapshot], None]

_AT_ONCE = 16
_SHARED_AT_ONCE = 200
"""Of looks that read many partitions with one request: so many are under way, or wait for it."""


class CassandraWatch(Watch):
    """One observation."""

    def __init__(
        self,
        target: Target,
        sink: Sink,
        orders: Orders,
        forget: Callable[["CassandraWatch"], None],
    ) -> None:
        """Tell *sink* of *target*; call *forget* in the end."""
        self.target = target
        self._sink = sink
        self._orders = orders
        self._forget = forget
        self._told: Snapshot | None = None
        self._closed = False
        self._lock = threading.RLock()

    def take(self, snapshot: Snapshot) -> bool:
        """Tell of a state if it is news, or if an answer elsewhere has overtaken what was told."""
        with self._lock:
            told = self._told
            if self._closed or (told is not None and snapshot.order <= told.order):
                return False
            news = told is None or snapshot[1:3] != told[1:3]  # entries, and what is unreadable
            if told is None or news or self._orders.told > told.order:
                self._told = snapshot
                self._sink(snapshot)
            return news

    def knows(self) -> Snapshot | None:
        """Return the state that was told last, if any."""
        return self._told

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)


class Watches:
    """All watches of one backend. Those of one namespace share a look. Thread-safe."""

    def __init__(
        self, states: States, calls: Calls, seconds: float, departed: Callable[[], Departed]
    ) -> None:
        """Look at *states* every so many *seconds*, and keep *departed* for each observer."""
        self._states = states
        self._calls = calls
        self._departed = departed
        self._rhythm = Rhythm(calls.pulse, Few(_AT_ONCE), seconds)
        self._shared_rhythm = Rhythm(calls.pulse, Few(_SHARED_AT_ONCE), seconds)
        self._polls: dict[Target, Poll] = {}
        self._numbers = Counter[Target]()
        self._watches: dict[CassandraWatch, Target] = {}
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, target: Target, sink: Sink) -> CassandraWatch:
        """Tell *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        self._calls.check()
        watch = CassandraWatch(target, sink, self._calls.orders, self._forget)
        place = _place(target)
        with self._lock:
            if self._stopped:
                raise closed()
            self._watches[watch] = place
            self._numbers[place] += 1
            poll = self._polls.get(place)
            if poll is None:
                poll = self._polls[place] = self._made(place)
        poll.add(watch)
        return watch

    def stop(self) -> None:
        """Close all watches, and take no more."""
        with self._lock:
            self._stopped = True
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def _made(self, place: Target) -> Poll:
        if place.kind is Kind.NAMESPACE:
            return NamespacePoll(place.scope, self._states, self._shared_rhythm)
        rhythm = self._shared_rhythm if place.kind is Kind.SERVICE else self._rhythm
        return WholePoll(place, self._states, rhythm, self._departed())

    def _forget(self, watch: CassandraWatch) -> None:
        with self._lock:
            place = self._watches.pop(watch, None)
            if place is None:
                return
            poll = self._polls[place]
            self._numbers[place] -= 1
            if not self._numbers[place]:
                del self._polls[place], self._numbers[place]
        poll.remove(watch)


def _place(target: Target) -> Target:
    """Return what is looked at for *target*: for a value, its namespace."""
    return Target(Kind.NAMESPACE, target.scope) if target.kind is Kind.VALUE else target
