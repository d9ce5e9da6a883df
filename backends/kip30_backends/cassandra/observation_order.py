"""One order over all answers of a backend, and the revisions of its writes.

Partitions are not ordered among each other, and an expiry changes no number in the store. So the
client keeps an order of its own: a read has the order of the moment it was sent, and comes after
every read answered before that; a claim has the order of its answer, so that only a later read can
deny it.

Of two reads of one target that overlap, the one that was sent first may see the later state. So a
read whose answer differs from that of an overlapping one is repeated.
"""

import itertools
import threading
import time
from collections.abc import Mapping

from kip30.driver.records import Entry, Target
from kip30.errors import StoreError


class AnswerOrder:
    """Puts answers in order. Thread-safe.

    Attributes:
        last_stamp: The greatest order given to an answer, other than of a watch.
    """

    def __init__(self) -> None:
        """Start counting."""
        self._numbers = itertools.count(1)
        self.last_stamp = 0

    def next(self) -> int:
        """Return the order of this moment, for watches."""
        return next(self._numbers)

    def stamp(self) -> int:
        """Return the order of this moment, for an answer that watches have to overtake."""
        order = self.last_stamp = next(self._numbers)
        return order


class _TargetReads:
    """The reads of one target that are under way, and the results of other reads meanwhile."""

    __slots__ = ("answered_at", "changed_at", "entries", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        # The result of the last accepted read, and the orders of two moments: when it was accepted,
        # and when the result changed.
        self.entries: Mapping[str, Entry] | None = None
        self.answered_at = self.changed_at = -1


class OverlappingReads:
    """Compares reads of one target that are under way at the same time. Thread-safe.

    Nothing is kept of a target while no read of it is under way.
    """

    def __init__(self, orders: AnswerOrder) -> None:
        """Take the orders of moments from *orders*."""
        self._orders = orders
        self._overlaps: dict[Target, _TargetReads] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many targets are being read."""
        return len(self._overlaps)

    def begin(self, target: Target) -> None:
        """Note that a read of *target* is about to be sent; `end` must follow."""
        with self._lock:
            overlap = self._overlaps.get(target)
            if overlap is None:
                overlap = self._overlaps[target] = _TargetReads()
            overlap.under_way += 1

    def end(self, target: Target) -> None:
        """Note that a read of *target* has ended, whether it was answered or not."""
        with self._lock:
            overlap = self._overlaps[target]
            overlap.under_way -= 1
            if not overlap.under_way:
                del self._overlaps[target]

    def accept(self, target: Target, order: int, entries: Mapping[str, Entry]) -> bool:
        """Accept the result of a read with *order*; false if an overlapping one had another."""
        with self._lock:
            overlap = self._overlaps.get(target)
            if overlap is None:  # it was abandoned: no caller waits for it
                return True
            is_first, is_same = overlap.entries is None, overlap.entries == entries
            latest = overlap.changed_at if is_same else overlap.answered_at
            if latest > order:
                return False
            overlap.answered_at = self._orders.next()
            if not is_same:
                overlap.entries = entries
                overlap.changed_at = -1 if is_first else overlap.answered_at
            return True


# How far ahead of this client's clock another one may be, in microseconds.
_DAY = 86_400_000_000
_MOST = 2**62
"""Greater than any clock shows: the year is 148,000 by then."""

Place = tuple[str, str]
"""A table, and the namespace or group."""


class Revisions:
    """Proposes revisions: greater than all that were seen, and near the time of day.

    A partition accepts a write only if its revision is above all earlier ones, so two clients
    rarely conflict; a wrong clock costs a round trip, and nothing else. Because no partition
    accepts a revision twice, a write that carries one can be retried without being done twice.

    A partition that is further ahead than clocks are wrong is treated alone, as long as it is: no
    other follows it.
    """

    def __init__(self) -> None:
        """Start without any."""
        # Both are written under the lock: the newest revision proposed or seen, and the revisions
        # of partitions that are further ahead than clocks are wrong, which others must not follow.
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

    def observe(self, place: Place, revision: int | None) -> None:
        """Record that the partition of *place* has reached *revision*.

        Raises:
            StoreError: It is more than any client has written, so hardly any revision is greater.
        """
        if revision is None:
            return
        if revision > _MOST:
            raise StoreError(_forged(place, revision))
        with self._lock:
            # Also above what was proposed there: a request with that may be under way.
            reached = max(revision, self._ahead.pop(place, 0))
            if reached > time.time_ns() // 1000 + _DAY:
                self._ahead[place] = reached
            else:
                self._last = max(self._last, reached)


def _forged(place: Place, revision: int) -> str:
    table, scope = place
    column = "namespace" if table == "records" else "in_group"
    return (
        f"table {table} has rev = {revision} where {column} = {scope!r}: kip30 did not write that,"
        " and can write nothing there; set it to the greatest version there, or to the time of day"
        " in microseconds"
    )
