"""The verbs of a peer that reports until when it believes in its claims.

Its clock can be slow in the one place where the driver reads the time that it dates leases from, so
that nothing below the driver has to be delayed: a time that is read too late is then far too late.
"""

import inspect
import threading
import time
from collections import deque
from contextlib import ExitStack
from types import CodeType

from typing_extensions import override

from kip30 import PluginLocator
from kip30.driver.clock import SystemClock
from kip30.driver.lease import Lease
from kip30.driver.records import new_nonce
from kip30_conformance.polling import eventually, time_scale

Place = tuple[tuple[CodeType, int], ...]
"""A place where a clock is read: the innermost lines of code, the nearest first."""

_MARGIN_SECONDS = 0.02
_DEPTH = 3
_REMEMBERED = 10_000
_EQUAL_SECONDS = 1e-6


class PlacedClock(SystemClock):
    """Knows where each time was read, and can be slow in one place. Thread-safe."""

    def __init__(self) -> None:
        """Be as fast as any clock."""
        self.slow_reads = 0
        self._slow: Place | None = None
        self._seconds = 0.0
        self._reads = deque[tuple[float, Place]](maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def slow_down(self, place: Place, seconds: float) -> None:
        """From now on take *seconds* for each reading in *place*."""
        self._slow, self._seconds = place, seconds

    @override
    def now(self) -> float:
        place = _place()
        if place == self._slow:
            time.sleep(self._seconds)
            self.slow_reads += 1
        now = super().now()
        with self._lock:
            self._reads.append((now, place))
        return now

    def place_of(self, moment: float) -> Place | None:
        """Return where *moment* was read; None if that was nowhere."""
        with self._lock:
            at, place = min(self._reads, key=lambda read: abs(read[0] - moment))
        return place if abs(at - moment) < _EQUAL_SECONDS else None


class LeaseVerbs:
    """The verbs; each method is one."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.clients = ExitStack()
        self.properties: dict[str, str] = {}
        self._places: dict[str, Place | None] = {}

    def learn_dating(self, what: str) -> bool:
        """Find where the driver reads the times from which it dates a ``claim`` or ``renewal``.

        Returns whether there is such a place.
        """
        clock = PlacedClock()
        with PluginLocator(clock=clock).startup(self._with_margin()) as client:
            lease = _claimed(client, f"learning {what}")
            if what == "renewal":
                _await_renewal(lease)
            place = self._places[what] = clock.place_of(self._date(lease))
        return place is not None

    def keep_claim(self, what: str, group: str) -> list[float]:
        """Claim ``m`` in *group*, and return until when it is held, and how many reads were slow.

        Those are slow that date a new lease (``claim``), its next ``renewal``, or ``nothing``. The
        deadline is 0 if the lease has ended.
        """
        clock, place = PlacedClock(), self._places.get(what)
        client = PluginLocator(clock=clock).startup(self._with_margin())
        self.clients.enter_context(client)
        late = self._seconds / 4  # so that it is dated before the next renewal is due
        if place is not None and what == "claim":
            clock.slow_down(place, late)
        lease = _claimed(client, group)
        if place is not None and what == "renewal":
            clock.slow_down(place, late)
            _await_renewal(lease)
        return [lease.deadline if lease.is_valid() else 0.0, clock.slow_reads]

    @property
    def _seconds(self) -> float:
        return float(self.properties["plugin.session.timeout.ms"]) / 1000

    def _with_margin(self) -> dict[str, str]:
        """Return the properties with a margin that hides little of what a driver does wrong."""
        return {**self.properties, "plugin.lease.margin.ms": f"{1000 * _MARGIN_SECONDS:g}"}

    def _date(self, lease: Lease) -> float:
        """Return the time from which *lease* counts."""
        margin = _MARGIN_SECONDS * min(1.0, lease.timeout_seconds / self._seconds)
        return lease.deadline - (lease.timeout_seconds - margin)


def _place() -> Place:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    outer = frame.f_back.f_back
    lines = list[tuple[CodeType, int]]()
    while outer is not None and len(lines) < _DEPTH:
        lines.append((outer.f_code, outer.f_lineno))
        outer = outer.f_back
    return tuple(lines)


def _claimed(client: PluginLocator, group: str) -> Lease:
    return client.backend.membership.claim(group, "m", new_nonce(), b"").result().lease


def _await_renewal(lease: Lease) -> None:
    granted = lease.deadline
    eventually(
        lambda: lease.deadline > granted or not lease.is_valid(),
        within=lease.timeout_seconds
        / min(1.0, time_scale()),  # a lease has its time on any machine
        what="the lease is renewed, or ends",
    )
