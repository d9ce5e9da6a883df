"""The services that candidates of this process stand for, or that it listens to, as it knows them.

A program may nominate candidates for one service after the other, each of which leaves counters
behind. Those of a service in use stay, and those of the `KEPT` that were in use last.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from kip30.driver.clock import Clock
from kip30.driver.records import Claim, Snapshot
from kip30.metrics import definitions
from kip30.metrics.instruments import CounterFamily, GaugeFamily, HistogramFamily, Instrument
from kip30.names import INTERNAL

KEPT = 100
"""Number of services that are no longer in use, and whose counters are kept."""

_ENDINGS = {"resigned": "resigned", "closed": "closed"}
"""The label of a term by its reason to end; that of most other reasons is ``lost``."""

_TermId = tuple[int, str]
"""The epoch of a term, and its nonce: a store that came back empty counts epochs from 1 again."""


class MeasuredTerm(Protocol):
    """A term of a candidate of this process, as far as metrics need it."""

    service: str
    claim: Claim
    step_down_reason: str

    @property
    def ending_reason(self) -> str:
        """Reason why it has ended."""
        ...

    def is_valid(self) -> bool:
        """Return whether it holds now, by the clock."""
        ...


class MeasuredPause(Protocol):
    """A pause of a service, as far as metrics need it."""

    def is_over(self, time_of_day: float) -> bool:
        """Return whether it has ended by itself."""
        ...


class _Service:
    """One service."""

    def __init__(self) -> None:
        self.has_candidate = False  # whether this process has nominated any
        self.order = -1  # of the newest state that is known
        self.has_leader = False  # by that state
        self.newest: _TermId | None = None  # the newest term that is known
        self.own: MeasuredTerm | None = None  # the newest term of this process, until it ends
        self.ended: _TermId | None = None  # the newest term of this process that has ended
        self.vacant_since: float | None = None
        self.obeys_directives = False  # whether candidates of this process watch for them
        self.pause: MeasuredPause | None = None  # that of the newest directives

    def leads(self) -> bool:
        """Return whether a candidate of this process leads at this moment."""
        return self.own is not None and self.own.is_valid()

    def is_led(self) -> bool:
        """Return whether the service has a leader, as far as this process knows."""
        if self.own is not None and _id(self.own) == self.newest:
            return self.own.is_valid()  # the clock knows before the store
        return self.has_leader

    def becomes_vacant(self, now: float) -> None:
        """Note that nobody leads, since *now* unless it is known for longer."""
        self.has_leader = False
        if self.vacant_since is None:
            self.vacant_since = now


class ServiceMetrics:
    """The metrics with the label ``service``. Thread-safe.

    Services of kip30's own, such as locks, have none: a program may use any number of them.
    """

    def __init__(
        self,
        clock: Clock,
        watched: Callable[[], Collection[str]],
        in_use: Callable[[], Collection[str]],
    ) -> None:
        """Measure by *clock*.

        *watched* returns the services whose states `saw` is called with, and *in_use* these and all
        that candidates stand for. They are called under a lock, and must take none.
        """
        self._clock = clock
        self._watched = watched
        self._in_use = in_use
        self._changes = CounterFamily(definitions.LEADER_CHANGES_SEEN)
        self._terms = CounterFamily(definitions.TERMS)
        self._elections = HistogramFamily(definitions.ELECTION_DURATION)
        # The service that was used last is last.
        self._services: OrderedDict[str, _Service] = OrderedDict()
        self._sweep_at = 2 * KEPT
        self._lock = threading.Lock()
        self.instruments: tuple[Instrument, ...] = (
            GaugeFamily(definitions.LEADER, self._leads),
            GaugeFamily(definitions.HAS_LEADER, self._is_led),
            GaugeFamily(definitions.LEADER_EPOCH, self._epochs),
            GaugeFamily(definitions.PAUSED, self._are_paused),
            self._changes,
            self._terms,
            self._elections,
        )

    def nominated(self, name: str) -> None:
        """Note that the first candidate of a handle is nominated, perhaps once more."""
        if name.startswith(INTERNAL):
            return
        with self._lock:
            service = self._used(name)
            service.has_candidate = True
            if service.vacant_since is not None:  # a vacancy without a candidate is no election
                service.vacant_since = self._clock.now()

    def elected(self, term: MeasuredTerm) -> None:
        """Note a new term of this process."""
        name = term.service
        if name.startswith(INTERNAL):
            return
        with self._lock:
            service = self._used(name)
            if service.own is None or service.own.claim.order < term.claim.order:
                service.own = term
            seconds = self._led(name, service, term.claim.order, _id(term))
        self._observe(name, seconds)

    def ended(self, term: MeasuredTerm) -> None:
        """Note the end of a term of this process."""
        name = term.service
        if name.startswith(INTERNAL):
            return
        with self._lock:
            service = self._used(name)
            self._terms.series(name, _ending(term)).increment()
            if service.own is term:
                service.own = None
            service.ended = _id(term)
            if service.newest == service.ended:
                service.becomes_vacant(self._clock.now())

    def saw(self, name: str, snapshot: Snapshot) -> None:
        """Note a state of a service; another state that is known may be newer."""
        if name.startswith(INTERNAL) or snapshot.unreadable:
            return
        seconds = None
        with self._lock:
            service = self._used(name)
            entry = next(iter(snapshot.entries.values()), None)
            if entry is not None:
                shown = entry.version.major, entry.nonce
                seconds = self._led(name, service, snapshot.order, shown)
            elif snapshot.order >= service.order:
                service.order = snapshot.order
                service.becomes_vacant(self._clock.now())
        self._observe(name, seconds)

    def directed(self, name: str, pause: MeasuredPause | None) -> None:
        """Note the pause of a service whose directives candidates of this process obey."""
        with self._lock:
            service = self._used(name)
            service.obeys_directives, service.pause = True, pause

    def undirected(self, name: str) -> None:
        """Note that no candidate of this process watches for the directives of a service now."""
        with self._lock:
            service = self._services.get(name)
            if service is not None:
                service.obeys_directives, service.pause = False, None

    def unwatched(self, name: str) -> None:
        """Note that a service is not watched any longer, so that the end of a vacancy is missed."""
        with self._lock:
            service = self._services.get(name)
            if service is not None:
                service.vacant_since = None

    def _used(self, name: str) -> _Service:
        service = self._services.get(name)
        if service is None:
            if len(self._services) >= self._sweep_at:
                self._sweep()
            service = self._services[name] = _Service()
        else:
            self._services.move_to_end(name)
        return service

    def _sweep(self) -> None:
        in_use = self._in_use()
        others = [name for name in self._services if name not in in_use]
        for name in others[: max(0, len(others) - KEPT)]:
            del self._services[name]
            for family in (self._changes, self._terms, self._elections):
                family.remove(name)
        self._sweep_at = 2 * max(KEPT, len(self._services))

    def _led(self, name: str, service: _Service, order: int, term: _TermId) -> float | None:
        """Note that *term* leads; if it ends a vacancy, return how long that was."""
        if order < service.order:
            return None
        service.order = order
        if term == service.ended:  # the store does not know yet that it has ended
            return None
        if term != service.newest:
            service.newest = term
            self._changes.series(name).increment()
        service.has_leader = True
        since, service.vacant_since = service.vacant_since, None
        return None if since is None else self._clock.now() - since

    def _observe(self, name: str, seconds: float | None) -> None:
        """Observe an election; without the lock, because exporters may be called."""
        if seconds is not None:
            self._elections.series(name).observe(seconds)

    def _leads(self) -> Mapping[tuple[str, ...], float]:
        return {
            (name,): float(service.leads())
            for name, service in self._known()
            if service.has_candidate
        }

    def _is_led(self) -> Mapping[tuple[str, ...], float]:
        watched = self._watched()
        return {
            (name,): float(service.is_led())
            for name, service in self._known()
            if (name in watched and service.order >= 0) or service.leads()
        }

    def _epochs(self) -> Mapping[tuple[str, ...], float]:
        return {
            (name,): service.newest[0]
            for name, service in self._known()
            if service.newest is not None
        }

    def _are_paused(self) -> Mapping[tuple[str, ...], float]:
        now = time.time()
        return {
            (name,): float(service.pause is not None and not service.pause.is_over(now))
            for name, service in self._known()
            if service.obeys_directives
        }

    def _known(self) -> list[tuple[str, _Service]]:
        with self._lock:
            return list(self._services.items())


def _ending(term: MeasuredTerm) -> str:
    reason = term.ending_reason
    if reason and reason == term.step_down_reason:
        return "stepped_down"
    return _ENDINGS.get(reason, "lost")


def _id(term: MeasuredTerm) -> _TermId:
    entry = term.claim.entry
    return entry.version.major, entry.nonce
