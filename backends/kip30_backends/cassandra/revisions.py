"""The revisions that writes give to partitions: numbers that only grow."""

import threading
import time

from kip30.errors import StoreError

_DAY = 86_400_000_000
_MOST = 2**62
"""Above what no clock shows: the year is 148,000 by then."""

Place = tuple[str, str]
"""A table, and the namespace or group."""


class Revisions:
    """Proposes revisions: greater than all that were seen, and near the time of day.

    A partition takes a write only if its revision is above all before, so two clients rarely get
    in each other's way; that one's clock is wrong costs a round trip, nothing else. As no partition
    takes a revision twice, a write that carries one can be repeated without being done twice.

    A partition that is further ahead than clocks go wrong is on its own: others must not follow it.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._last = 0
        self._ahead: dict[Place, int] = {}
        self._lock = threading.Lock()

    def next(self, place: Place | None = None) -> int:
        """Return a revision that is new to this client, for *place*."""
        with self._lock:
            self._last = max(time.time_ns() // 1000, self._last + 1)
            if place not in self._ahead:
                return self._last
            self._ahead[place] += 1
            return self._ahead[place]

    def saw(self, place: Place, revision: int | None) -> None:
        """Take note that the partition of *place* has reached *revision*.

        Raises:
            StoreError: That is more than any client has written: there is hardly a greater one.
        """
        if revision is None:
            return
        if revision > _MOST:
            raise StoreError(_forged(place, revision))
        with self._lock:
            if revision > time.time_ns() // 1000 + _DAY:
                self._ahead[place] = max(revision, self._ahead.get(place, 0))
            else:
                self._last = max(self._last, revision)


def _forged(place: Place, revision: int) -> str:
    table, scope = place
    column = "namespace" if table == "records" else "in_group"
    return (
        f"table {table} has rev = {revision} where {column} = {scope!r}: kip30 did not write that,"
        " and can write nothing there; set it to the greatest version there, or to the time of day"
        " in microseconds"
    )
