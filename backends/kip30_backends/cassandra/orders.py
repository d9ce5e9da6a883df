"""Numbers that only grow: the order of answers, and the revisions that writes give to partitions.

Partitions are not ordered among each other, and an expiry changes no number in the store. So the
order is the client's own: a read has that of the moment it was sent, and what was read before
cannot follow it; a claim has that of its answer, so that only what was read later can deny it.
"""

import itertools
import threading
import time


class Orders:
    """Puts answers in order. Thread-safe.

    Attributes:
        told: The greatest order handed out so far other than to a watch.
    """

    def __init__(self) -> None:
        """Begin to count."""
        self._numbers = itertools.count(1)
        self.told = 0

    def next(self) -> int:
        """Return the order of this moment, for whoever watches."""
        return next(self._numbers)

    def tell(self) -> int:
        """Return the order of this moment, for an answer that watches have to overtake."""
        order = self.told = next(self._numbers)
        return order


class Revisions:
    """Proposes revisions: greater than all that were seen, and near the time of day.

    A partition takes a write only if its revision is above all before, so two clients rarely get
    in each other's way; that one's clock is wrong costs a round trip, nothing else. As no partition
    takes a revision twice, a write that carries one can be repeated without being done twice.
    """

    def __init__(self) -> None:
        """Have seen none."""
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return a revision that is new to this client."""
        with self._lock:
            self._last = max(time.time_ns() // 1000, self._last + 1)
            return self._last

    def saw(self, revision: int | None) -> None:
        """Take note that a partition has reached *revision*."""
        with self._lock:
            self._last = max(self._last, revision or 0)
