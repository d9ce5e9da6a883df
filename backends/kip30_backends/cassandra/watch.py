"""Observing targets: looking again and again, because Cassandra notifies of no change.

A namespace is looked at by its marks, and what is watched of it is read when these have moved.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.kit.following import gathered, then
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Entry, Kind, Snapshot, Target
from kip30.errors import AuthenticationError, StoreError
from kip30_backends.cassandra.batched_reads import MOST, snapshot
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.order import Orders
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit
from kip30_backends.cassandra.request import Calls
from kip30_backends.cassandra.snapshots import ResurrectedRows, Revision, States

_log = logging.getLogger(__name__)

_HURRY = 8
"""How much sooner the next look is after news, since more is likely to come."""


class Watcher(Protocol):
    """Who wants to know of a target."""

    target: Target

    def take(self, snapshot: Snapshot) -> bool:
        """Hear of a state; say whether it is news."""
        ...

    def knows(self) -> Snapshot | None:
        """Return the state that was delivered last, if any."""
        ...


class Rhythm(NamedTuple):
    """When to look: so many *seconds* after each look, as far as *limiter* lets it."""

    pulse: Timer
    limiter: ConcurrencyLimit
    seconds: float


class Poll:
    """Looks at one place for as long as anybody watches. Thread-safe."""

    def __init__(self, rhythm: Rhythm) -> None:
        """Look in that *rhythm*, and sooner after news or for a new watcher."""
        self._rhythm = rhythm
        # All of these but _warned are written under the lock.
        self._watchers: set[Watcher] = set()
        # Whether a look is under way: there is one at a time.
        self._looking = False
        # Whether a watcher came meanwhile, whose first look must not wait for the pause.
        self._at_once = False
        # Whether the log says that listeners hear nothing. Written when a look ends.
        self._warned = False
        # Counts looks, so that a timer that was set before an earlier look does nothing.
        self._turn = 0
        self._pause = rhythm.seconds
        self._lock = threading.Lock()

    def add(self, watcher: Watcher) -> None:
        """Tell *watcher* from now on."""
        with self._lock:
            self._watchers.add(watcher)
        self._begin()

    def remove(self, watcher: Watcher) -> None:
        """Undo `add`."""
        with self._lock:
            self._watchers.discard(watcher)

    def look(self, watchers: Sequence[Watcher]) -> Future[bool]:
        """Look once, and tell *watchers*; say whether there was news."""
        raise NotImplementedError

    def _begin(self, turn: int | None = None) -> None:
        """Look, unless a look is under way, or *turn* is not the next one any more."""
        with self._lock:
            if turn not in {None, self._turn}:
                return
            if self._looking:
                self._at_once = True
                return
            watchers = list(self._watchers)
            self._looking = bool(watchers)
        if watchers:
            self._rhythm.limiter.do(partial(self.look, watchers)).add_done_callback(self._looked)

    def _looked(self, done: Future[bool]) -> None:
        error = done.exception()
        self._report(error)
        news = error is None and done.result()
        with self._lock:
            self._looking = False
            at_once, self._at_once = self._at_once, False
            self._turn += 1
            turn = self._turn
            seconds = self._rhythm.seconds
            self._pause = seconds / _HURRY if news else min(2 * self._pause, seconds)
            pause = 0.0 if at_once else self._pause
        self._rhythm.pulse.after(pause, partial(self._begin, turn))

    def _report(self, error: BaseException | None) -> None:
        """Log *error*; the first one that will not pass by itself as a warning."""
        if isinstance(error, StoreError | AuthenticationError) and not self._warned:
            self._warned = True
            _log.warning("listeners hear of no changes until this is mended: %s", error)
        elif error is not None:
            _log.info("retrying a watch after: %s", error)
        elif self._warned:
            self._warned = False
            _log.warning("listeners hear of changes again")


class WholePoll(Poll):
    """Reads a group or a service, whose records may expire without a trace."""

    def __init__(
        self, target: Target, states: States, rhythm: Rhythm, resurrected: ResurrectedRows
    ) -> None:
        """Read *target* from *states*, without those who are back from *resurrected*."""
        super().__init__(rhythm)
        self._target = target
        self._states = states
        self._resurrected = resurrected

    @override
    def look(self, watchers: Sequence[Watcher]) -> Future[bool]:
        def tell(read: Snapshot) -> bool:
            snapshot = read._replace(entries=self._resurrected.left_out(read.entries))
            return bool([one for one in watchers if one.take(snapshot)])

        return mapped(self._states.poll(self._target), tell)


class _Track:
    """Watchers of one kind, and the mark that moves with what they watch.

    A write may be decided, but known to few nodes: a look may then meet its mark at one of them,
    and what was there before at others. So once the mark is at rest, a look that misses nothing
    decided ends what is under way.
    """

    def __init__(self) -> None:
        """Begin without a mark."""
        # The mark whose state all watchers received; None before the first one.
        self._seen: str | None = None
        # Whether they received it by a look that misses nothing decided. A partition that is
        # dropped has the mark again that it had before it was made, so any other mark ends this
        # before its state is read: watchers may receive it even if the look fails in the end.
        self._is_settled = False

    def unaware(self, watchers: Sequence[Watcher], mark: str) -> Sequence[Watcher]:
        """Return those of *watchers* that need the state, now that *mark* was met."""
        self._is_settled = self._is_settled and mark == self._seen
        if self._is_settled:
            return [one for one in watchers if one.knows() is None]
        return watchers

    def settles(self, mark: str) -> bool:
        """Say whether what is read now must miss nothing decided."""
        return mark == self._seen and not self._is_settled

    def end(self, mark: str) -> None:
        """Take note that all watchers received what *mark* stands for."""
        self._is_settled = mark == self._seen
        self._seen = mark


_Told = Future[bool | None]
"""Whether what was read was news; None: it must be read again."""
_Read = Callable[[Sequence[Watcher], bool], Sequence[_Told]]
"""Reads what watchers watch, surely or not."""


class NamespacePoll(Poll):
    """Reads the marks of a namespace: one moves with every write, one with its names."""

    def __init__(self, namespace: str, states: States, rhythm: Rhythm) -> None:
        """Read *namespace* from *states*."""
        super().__init__(rhythm)
        self._namespace = namespace
        self._states = states
        self._tracks = dict[Kind, _Track]()

    @override
    def look(self, watchers: Sequence[Watcher]) -> Future[bool]:
        told = self._states.told
        behind = [one for one in watchers if (known := one.knows()) and known.order < told]
        order, end = self._states.begin([one.target for one in behind])
        with_names = any(one.target.kind is Kind.NAMESPACE for one in watchers)
        read = self._states.revision(self._namespace, with_names=with_names)
        compared = then(read, partial(self._compare, watchers, behind, order))
        compared.add_done_callback(end)
        return compared

    def _compare(
        self,
        watchers: Sequence[Watcher],
        behind: Sequence[Watcher],
        order: int,
        revision: Revision,
    ) -> Future[bool]:
        values = [one for one in watchers if one.target.kind is Kind.VALUE]
        others = [one for one in watchers if one.target.kind is not Kind.VALUE]
        reads = [
            self._catch_up(Kind.VALUE, values, str(revision.number), self._values),
            self._catch_up(Kind.NAMESPACE, others, revision.names, self._names),
        ]
        for unaware, _ in reads:
            behind = [one for one in behind if one not in unaware]
        for one in behind:
            self._affirm(one, order)
        return mapped(gathered([read for _, read in reads]), any)

    def _catch_up(
        self, kind: Kind, watchers: Sequence[Watcher], mark: str, read: _Read
    ) -> tuple[set[Watcher], Future[bool]]:
        """Hand *watchers* what *mark* stands for, if they do not know; return those that do not."""
        if not watchers:
            self._tracks.pop(kind, None)  # what has no watcher is not settled
        track = self._tracks.setdefault(kind, _Track()) if watchers else _Track()
        unaware = track.unaware(watchers, mark)

        def ended(told: Sequence[bool | None]) -> bool:
            if None in told:
                return True
            track.end(mark)
            return any(told)

        if not unaware:
            return set(), Completed(False)  # noqa: FBT003  no news
        return set(unaware), mapped(gathered(read(unaware, track.settles(mark))), ended)

    def _affirm(self, watcher: Watcher, order: int) -> None:
        """Tell what is known again, as the state of a later moment."""
        known = watcher.knows()
        if known is not None and self._states.accept(watcher.target, order, known.entries):
            watcher.take(known._replace(order=order))

    def _names(self, watchers: Sequence[Watcher], surely: bool) -> list[_Told]:  # noqa: FBT001
        polls = [(one, self._states.poll(one.target, surely=surely)) for one in watchers]
        return [mapped(poll, partial(_tell_names, one)) for one, poll in polls]

    def _values(self, watchers: Sequence[Watcher], surely: bool) -> list[_Told]:  # noqa: FBT001
        some = [watchers[at : at + MOST] for at in range(0, len(watchers), MOST)]
        return [self._some_values(part, surely=surely) for part in some]

    def _some_values(self, watchers: Sequence[Watcher], *, surely: bool) -> _Told:
        order, end = self._states.begin([one.target for one in watchers])

        def tell(entries: Mapping[str, Entry]) -> bool | None:
            told = [self._tell(one, _only(one.target.name, order, entries)) for one in watchers]
            return None if None in told else any(told)

        names = sorted({one.target.name for one in watchers})
        told = mapped(self._states.records(self._namespace, names, surely=surely), tell)
        told.add_done_callback(end)
        return told

    def _tell(self, watcher: Watcher, read: Snapshot) -> bool | None:
        """Tell *watcher* what was read; None if another answer may be newer."""
        is_newest = self._states.accept(watcher.target, read.order, read.entries)
        return watcher.take(read) if is_newest else None


def _tell_names(watcher: Watcher, read: Snapshot) -> bool | None:
    return watcher.take(read)


def _only(name: str, order: int, entries: Mapping[str, Entry]) -> Snapshot:
    return snapshot(order, {name: entries[name]} if name in entries else {})


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
        """Deliver a state if it is news, or if an answer elsewhere is newer than the last one."""
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
        """Return the state that was delivered last, if any."""
        return self._told

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)


class Watches:
    """All watches of one backend. Those of one namespace share a look. Thread-safe."""

    def __init__(
        self,
        states: States,
        calls: Calls,
        seconds: float,
        resurrected: Callable[[], ResurrectedRows],
    ) -> None:
        """Look at *states* every so many *seconds*, and keep *resurrected* for each observer."""
        self._states = states
        self._calls = calls
        self._resurrected = resurrected
        self._rhythm = Rhythm(calls.pulse, ConcurrencyLimit(_AT_ONCE), seconds)
        self._shared_rhythm = Rhythm(calls.pulse, ConcurrencyLimit(_SHARED_AT_ONCE), seconds)
        # What is looked at, with how many watches; and what each watch has looked at. Under the
        # lock: the last watch of a place takes its poll along.
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
        return WholePoll(place, self._states, rhythm, self._resurrected())

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


class CassandraObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, states: States, watches: Watches) -> None:
        """Read from *states* and be notified by *watches*."""
        self._states = states
        self._watches = watches

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._states.read(target)

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._watches.add(target, sink)
