"""Observing targets: by polling, because Cassandra notifies of no change.

A poll of a namespace reads its marks, and reads the watched records when these have changed.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

from typing_extensions import override

from kip30.driver.kit.futures import gathered
from kip30.driver.kit.operation import Steps, begun
from kip30.driver.kit.timer import Timer
from kip30.driver.kit.watch import Sink, WatchHandle
from kip30.driver.records import Entry, Kind, Snapshot, Target
from kip30.errors import AuthenticationError, ClosedError, StoreError
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.observation_order import AnswerOrder
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit
from kip30_backends.cassandra.target_states import (
    MOST,
    ResurrectedRows,
    Revision,
    TargetStates,
    snapshot,
)

_log = logging.getLogger(__name__)

_FAST_POLL_DIVISOR = 8
"""The factor by which the next poll comes sooner after news, since more is likely to come."""


class Watcher(Protocol):
    """An observer of a target."""

    target: Target

    def take(self, snapshot: Snapshot) -> bool:
        """Receive a state; return whether it is new."""
        ...

    def last_state(self) -> Snapshot | None:
        """Return the state that was delivered last, if any."""
        ...


class PollTiming(NamedTuple):
    """Timing of polls: *seconds* after each poll; *limiter* bounds how many polls run at a time."""

    timer: Timer
    limiter: ConcurrencyLimit
    seconds: float


class Poll:
    """Polls one place while it has watchers. Thread-safe."""

    def __init__(self, timing: PollTiming) -> None:
        """Poll by *timing*, and sooner after a change or for a new watcher."""
        self._timing = timing
        # All of these but _warned are written under the lock.
        self._watchers: set[Watcher] = set()
        # Whether a poll is under way: there is one at a time.
        self._looking = False
        # Whether a watcher came meanwhile, whose first poll must not wait for the pause.
        self._at_once = False
        # Whether the log says that listeners get no notifications. Written when a poll ends.
        self._warned = False
        # Counts polls, so that a timer that was set before an earlier poll does nothing.
        self._turn = 0
        self._pause = timing.seconds
        self._lock = threading.Lock()

    def add(self, watcher: Watcher) -> None:
        """Notify *watcher* from now on."""
        with self._lock:
            self._watchers.add(watcher)
        # On the timer's thread, where no Ctrl-C is raised: an interrupt between the beginning of a
        # poll and its callback would leave it under way for ever, and others behind it.
        self._timing.timer.after(0.0, self._begin)

    def remove(self, watcher: Watcher) -> None:
        """Undo `add`."""
        with self._lock:
            self._watchers.discard(watcher)

    def look(self, watchers: Sequence[Watcher]) -> Steps[bool]:
        """Poll once, and notify *watchers*; return whether anything was new."""
        raise NotImplementedError

    def _begin(self, turn: int | None = None) -> None:
        """Poll, unless a poll is under way, or *turn* is no longer the next one."""
        with self._lock:
            if turn not in {None, self._turn}:
                return
            if self._looking:
                self._at_once = True
                return
            watchers = list(self._watchers)
            self._looking = bool(watchers)
        if watchers:
            looked = self._timing.limiter.do(lambda: begun(self.look(watchers)))
            looked.add_done_callback(self._looked)

    def _looked(self, done: Future[bool]) -> None:
        error = done.exception()
        self._report(error)
        news = error is None and done.result()
        with self._lock:
            self._looking = False
            at_once, self._at_once = self._at_once, False
            self._turn += 1
            turn = self._turn
            seconds = self._timing.seconds
            self._pause = seconds / _FAST_POLL_DIVISOR if news else min(2 * self._pause, seconds)
            pause = 0.0 if at_once else self._pause
        self._timing.timer.after(pause, partial(self._begin, turn))

    def _report(self, error: BaseException | None) -> None:
        """Log *error*; the first one that will not pass by itself as a warning."""
        if isinstance(error, StoreError | AuthenticationError) and not self._warned:
            self._warned = True
            _log.warning("listeners are not notified until this is fixed: %s", error)
        elif isinstance(error, ClosedError):
            return  # nothing is retried; a line for each watch would fill a log
        elif error is not None:
            _log.info("retrying a watch after: %s", error)
        elif self._warned:
            self._warned = False
            _log.warning("listeners are notified again")


class WholePoll(Poll):
    """Reads a group or a service, whose records may expire without changing a mark."""

    def __init__(
        self, target: Target, states: TargetStates, timing: PollTiming, resurrected: ResurrectedRows
    ) -> None:
        """Read *target* from *states*, without the rows that *resurrected* leaves out."""
        super().__init__(timing)
        self._target = target
        self._states = states
        self._resurrected = resurrected

    @override
    def look(self, watchers: Sequence[Watcher]) -> Steps[bool]:
        read: Snapshot = yield self._states.poll(self._target)
        snapshot = read._replace(entries=self._resurrected.left_out(read.entries))
        return bool([one for one in watchers if one.take(snapshot)])


class _PolledKind:
    """Watchers of one kind, and the mark that changes with what they watch.

    A write may be decided, but known to few nodes: a poll may then read its mark from one of them,
    and the earlier state from others. So once the mark no longer changes, a poll that misses no
    decided write completes all pending ones.
    """

    def __init__(self) -> None:
        """Start without a mark."""
        # The mark whose state all watchers received; None before the first one.
        self._seen: str | None = None
        # Whether they received it by a poll that misses no decided write. A partition that is
        # dropped has the same mark again as before it was created, so any other mark resets this
        # before its state is read: watchers may receive it even if the poll then fails.
        self._is_settled = False

    def without_state(self, watchers: Sequence[Watcher], mark: str) -> Sequence[Watcher]:
        """Return those of *watchers* that need the state of the *mark* just read."""
        self._is_settled = self._is_settled and mark == self._seen
        if self._is_settled:
            return [one for one in watchers if one.last_state() is None]
        return watchers

    def needs_settling_read(self, mark: str) -> bool:
        """Return whether the next read must miss no decided write."""
        return mark == self._seen and not self._is_settled

    def end(self, mark: str) -> None:
        """Record that all watchers received the state of *mark*."""
        self._is_settled = mark == self._seen
        self._seen = mark


class NamespacePoll(Poll):
    """Reads the marks of a namespace: one changes with every write, one with its names."""

    def __init__(self, namespace: str, states: TargetStates, timing: PollTiming) -> None:
        """Read *namespace* from *states*."""
        super().__init__(timing)
        self._namespace = namespace
        self._states = states
        self._tracks = dict[Kind, _PolledKind]()

    @override
    def look(self, watchers: Sequence[Watcher]) -> Steps[bool]:
        newest = self._states.last_stamp
        behind = [one for one in watchers if (known := one.last_state()) and known.order < newest]
        with_names = any(one.target.kind is Kind.NAMESPACE for one in watchers)
        with self._states.looking(one.target for one in behind) as order:
            revision: Revision = yield self._states.revision(self._namespace, with_names=with_names)
            return (yield from self._compared(watchers, behind, order, revision))

    def _compared(
        self,
        watchers: Sequence[Watcher],
        behind: Sequence[Watcher],
        order: int,
        revision: Revision,
    ) -> Steps[bool]:
        """Deliver what the marks of *revision* show to be new; return whether anything was."""
        values = [one for one in watchers if one.target.kind is Kind.VALUE]
        others = [one for one in watchers if one.target.kind is not Kind.VALUE]
        catching_up: list[Future[bool]] = []
        for kind, some, mark, to_read in (
            (Kind.VALUE, values, str(revision.number), self._values),
            (Kind.NAMESPACE, others, revision.names, self._names),
        ):
            track = self._track(kind, some)
            without_state = track.without_state(some, mark)
            late = set(without_state)
            behind = [one for one in behind if one not in late]
            if without_state:
                outcomes = to_read(without_state, track.needs_settling_read(mark))
                catching_up.append(begun(self._caught_up(track, mark, outcomes)))
        for one in behind:
            self._redeliver(one, order)
        news: list[bool] = yield gathered(catching_up)
        return any(news)

    def _track(self, kind: Kind, watchers: Sequence[Watcher]) -> _PolledKind:
        if not watchers:
            self._tracks.pop(kind, None)  # without watchers, nothing is settled
            return _PolledKind()
        return self._tracks.setdefault(kind, _PolledKind())

    def _caught_up(
        self, track: _PolledKind, mark: str, reads: Sequence[Future[bool | None]]
    ) -> Steps[bool]:
        """Return whether anything was new, once *reads* have delivered the state of *mark*."""
        outcomes: list[bool | None] = yield gathered(reads)
        if None in outcomes:
            return True
        track.end(mark)
        return any(outcomes)

    def _redeliver(self, watcher: Watcher, order: int) -> None:
        """Deliver the known state again, as that of a later moment."""
        known = watcher.last_state()
        if known is not None and self._states.accept(watcher.target, order, known.entries):
            watcher.take(known._replace(order=order))

    def _names(self, watchers: Sequence[Watcher], surely: bool) -> list[Future[bool | None]]:  # noqa: FBT001
        return [begun(self._names_of(one, surely=surely)) for one in watchers]

    def _names_of(self, watcher: Watcher, *, surely: bool) -> Steps[bool | None]:
        read: Snapshot = yield self._states.poll(watcher.target, surely=surely)
        return watcher.take(read)

    def _values(self, watchers: Sequence[Watcher], surely: bool) -> list[Future[bool | None]]:  # noqa: FBT001
        some = [watchers[at : at + MOST] for at in range(0, len(watchers), MOST)]
        return [begun(self._some_values(part, surely=surely)) for part in some]

    def _some_values(self, watchers: Sequence[Watcher], *, surely: bool) -> Steps[bool | None]:
        """Return whether anything was new; None if it must be read again."""
        names = sorted({one.target.name for one in watchers})
        with self._states.looking(one.target for one in watchers) as order:
            entries: Mapping[str, Entry] = yield self._states.records(
                self._namespace, names, surely=surely
            )
            outcomes = [self._tell(one, _only(one.target.name, order, entries)) for one in watchers]
        return None if None in outcomes else any(outcomes)

    def _tell(self, watcher: Watcher, read: Snapshot) -> bool | None:
        """Deliver the state read to *watcher*; None if another answer may be newer."""
        is_newest = self._states.accept(watcher.target, read.order, read.entries)
        return watcher.take(read) if is_newest else None


def _only(name: str, order: int, entries: Mapping[str, Entry]) -> Snapshot:
    return snapshot(order, {name: entries[name]} if name in entries else {})


_AT_ONCE = 16
_SHARED_AT_ONCE = 200
"""The most polls under way or waiting, of those that read many partitions with one request."""


class CassandraWatch(WatchHandle):
    """One observation."""

    def __init__(
        self,
        target: Target,
        sink: Sink,
        orders: AnswerOrder,
        forget: Callable[["CassandraWatch"], None],
    ) -> None:
        """Deliver *target* to *sink*; call *forget* in the end."""
        super().__init__(target, sink, forget)
        self._orders = orders
        # The state that was delivered last, if any. Written under the lock.
        self._delivered: Snapshot | None = None

    def take(self, snapshot: Snapshot) -> bool:
        """Deliver a state if it is new, or if an answer elsewhere is newer than the last one."""
        with self.lock:
            last = self._delivered
            if self.is_closed or (last is not None and snapshot.order <= last.order):
                return False
            news = last is None or snapshot[1:3] != last[1:3]  # entries, and unreadable ones
            if last is None or news or self._orders.last_stamp > last.order:
                self.deliver(snapshot)
                self._delivered = snapshot  # last: what the sink raised at is delivered again
            return news

    def last_state(self) -> Snapshot | None:
        """Return the state that was delivered last, if any."""
        return self._delivered


class Watches:
    """All watches of one backend. Those of one namespace share a poll. Thread-safe."""

    def __init__(
        self,
        states: TargetStates,
        calls: Calls,
        seconds: float,
        resurrected: Callable[[], ResurrectedRows],
    ) -> None:
        """Poll *states* periodically, and keep *resurrected* for each observer."""
        self._states = states
        self._calls = calls
        self._resurrected = resurrected
        self._timing = PollTiming(calls.timer, ConcurrencyLimit(_AT_ONCE), seconds)
        self._shared_timing = PollTiming(calls.timer, ConcurrencyLimit(_SHARED_AT_ONCE), seconds)
        # The polled places, with the count of their watches; and the place of each watch. Under the
        # lock: the last watch of a place removes its poll.
        self._polls: dict[Target, Poll] = {}
        self._numbers = Counter[Target]()
        self._watches: dict[CassandraWatch, Target] = {}
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, target: Target, sink: Sink) -> CassandraWatch:
        """Notify *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        self._calls.gate.check()
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
        """Close all watches, and accept no more."""
        with self._lock:
            self._stopped = True
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def _made(self, place: Target) -> Poll:
        if place.kind is Kind.NAMESPACE:
            return NamespacePoll(place.scope, self._states, self._shared_timing)
        timing = self._shared_timing if place.kind is Kind.SERVICE else self._timing
        return WholePoll(place, self._states, timing, self._resurrected())

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
    """Return the place that is polled for *target*: for a value, its namespace."""
    return Target(Kind.NAMESPACE, target.scope) if target.kind is Kind.VALUE else target
