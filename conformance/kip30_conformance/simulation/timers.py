"""The timers of a simulation: events that are due at a virtual time."""

import heapq
import itertools
from collections.abc import Callable
from typing import NamedTuple


class _Timer(NamedTuple):
    moment: float
    ticket: int
    event: Callable[[], object]
    is_needed: Callable[[], bool]


def _always() -> bool:
    return True


class Timers:
    """Events that are due at a virtual time, those of one moment in the order of their calls."""

    def __init__(self) -> None:
        """Start without any."""
        self._timers: list[_Timer] = []
        self._tickets = itertools.count()

    def add(
        self, moment: float, event: Callable[[], object], is_needed: Callable[[], bool] = _always
    ) -> None:
        """Call *event* at *moment*.

        A timer is silently dropped if *is_needed* returns false when the clock would jump to it.
        """
        heapq.heappush(self._timers, _Timer(moment, next(self._tickets), event, is_needed))

    def call_due(self, now: float) -> None:
        """Call the events that are due at *now*."""
        while self._timers and self._timers[0].moment <= now:
            heapq.heappop(self._timers).event()

    def next_moment(self) -> float | None:
        """Return when the next event that is needed is due; None if there is none."""
        while self._timers and not self._timers[0].is_needed():
            heapq.heappop(self._timers)
        return self._timers[0].moment if self._timers else None
