"""All metrics of one open store, and what the runtime reports to them; see `kip30.metrics`."""

import time
from collections.abc import Collection, Mapping
from typing import Protocol

from kip30._version import __version__
from kip30.driver import Context
from kip30.driver.lease import LATE
from kip30.driver.records import Kind, Snapshot, Target
from kip30.metrics import definitions
from kip30.metrics.instruments import CounterFamily, GaugeFamily, HistogramFamily, LabelValues
from kip30.metrics.registry import Metrics
from kip30.names import INTERNAL
from kip30.runtime.metered_drivers import RequestTimes
from kip30.runtime.service_metrics import ServiceMetrics
from kip30.runtime.unreadable import CONTAINER

States = Collection[tuple[Target, Snapshot]]
"""The newest known states of all watched targets."""


class Readings(Protocol):
    """The present state of a client, which gauges show. Any thread calls."""

    def states(self) -> States:
        """Return the newest states of all that is watched, where one is known. Takes no lock."""
        ...

    def candidate_services(self) -> Collection[str]:
        """Return the services that candidates stand for. Takes no lock."""
        ...

    def lease_remaining_seconds(self) -> float | None:
        """Return how long the session lasts unless renewed, 0 if one was lost and is awaited.

        None if nothing was claimed yet, or if nothing claims again after a lost session.
        """
        ...


class StoreMetrics:
    """The metrics of one open store. Thread-safe.

    Attributes:
        requests: The requests to the store.
        services: The services.
        callbacks: The calls of users' callbacks, by kind.
        exported: All of them, for exporters.
    """

    def __init__(self, store: str, context: Context, readings: Readings) -> None:
        """Show *readings* until `Metrics.end`."""
        self._readings: Readings = readings
        self.requests: RequestTimes = RequestTimes(context.operation_timeout_seconds)
        self.services: ServiceMetrics = ServiceMetrics(context.clock, self._watched, self._in_use)
        self.callbacks: HistogramFamily = HistogramFamily(definitions.CALLBACK_DURATION)
        self._lost = CounterFamily(definitions.SESSIONS_LOST)
        self._renewals = HistogramFamily(definitions.RENEWAL_DURATION)
        self.exported: Metrics = Metrics(
            store,
            (
                *self.services.instruments,
                self.requests.durations,
                self._lost,
                GaugeFamily(definitions.LEASE_REMAINING, self._lease_remaining),
                self._renewals,
                GaugeFamily(definitions.STORE_LAST_SEEN, self._last_seen),
                self.callbacks,
                GaugeFamily(definitions.UNREADABLE_RECORDS, self._unreadable),
                GaugeFamily(definitions.MEMBERS, self._members),
                GaugeFamily(definitions.BUILD_INFO, lambda: {(__version__,): 1}),
            ),
        )

    def saw(self, target: Target, snapshot: Snapshot) -> None:
        """Note a state that the store has sent."""
        self.requests.seen_at = time.monotonic()
        if target.kind is Kind.SERVICE:
            self.services.saw(target.scope, snapshot)

    def unwatched(self, target: Target) -> None:
        """Note that *target* is not watched any longer."""
        if target.kind is Kind.SERVICE:
            self.services.unwatched(target.scope)

    def renewed(self, seconds: float) -> None:
        """Note a renewal of a session that was acknowledged after *seconds*."""
        self.requests.seen_at = time.monotonic()
        self._renewals.series().observe(seconds)

    def lost(self, reason: str) -> None:
        """Note a session that was lost."""
        self._lost.series("late" if reason.startswith(LATE) else "ended").increment()

    def _watched(self) -> Collection[str]:
        return {
            target.scope for target, _ in self._readings.states() if target.kind is Kind.SERVICE
        }

    def _in_use(self) -> Collection[str]:
        return {*self._watched(), *self._readings.candidate_services()}

    def _lease_remaining(self) -> Mapping[LabelValues, float]:
        seconds = self._readings.lease_remaining_seconds()
        return {} if seconds is None else {(): seconds}

    def _last_seen(self) -> Mapping[LabelValues, float]:
        return {(): time.time() - (time.monotonic() - self.requests.seen_at)}

    def _unreadable(self) -> Mapping[LabelValues, float]:
        records = {
            (CONTAINER.get(target.kind, target.kind), target.scope, name)
            for target, state in self._readings.states()
            for name in state.unreadable
        }
        return {(): len(records)}

    def _members(self) -> Mapping[LabelValues, float]:
        return {
            (target.scope,): len(state.entries)
            for target, state in self._readings.states()
            if target.kind is Kind.GROUP and not target.scope.startswith(INTERNAL)
        }
