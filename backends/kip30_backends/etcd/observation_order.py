"""One order over all answers of a backend, also over servers that came back empty.

A store that lost its data starts its revisions again. Then another era begins, which is later than
all revisions of the one before.
"""

import threading
from typing import NamedTuple

from kip30_backends.etcd.client.messages import Header

_ERA = 64


class OrderMark(NamedTuple):
    """Progress of the answers at the moment when this was taken."""

    era: int = 0
    revision: int = 0
    cluster: int = 0


class AnswerOrder:
    """Puts answers in order. Thread-safe."""

    def __init__(self) -> None:
        """Start without an answer."""
        # How far answers have come. Replaced under the lock, read without it.
        self.latest = OrderMark()
        self._lock = threading.Lock()

    def of(self, header: Header, sent: OrderMark) -> int:
        """Return the order of an answer, given `latest` as it was when the request was sent."""
        era = self._era_of(header, sent)
        self._reached(OrderMark(era, header.revision, header.cluster_id))
        return order_of(era, header.revision)

    def observe(self, era: int, revision: int) -> int:
        """Return the order of an event that was seen in *era*."""
        self._reached(OrderMark(era, revision, self.latest.cluster))
        return order_of(era, revision)

    def _era_of(self, header: Header, sent: OrderMark) -> int:
        """Return the era of an answer: that of its request, or one that began since."""
        if _follows(header, sent):
            return sent.era
        with self._lock:
            now = self.latest
            # Of several answers of a store that started again, the first one begins the era.
            if now.era == sent.era or now.cluster != header.cluster_id:
                self.latest = OrderMark(now.era + 1, header.revision, header.cluster_id)
            return self.latest.era

    def _reached(self, mark: OrderMark) -> None:
        # Without the lock at first, because most reads find nothing later.
        if mark > self.latest:
            with self._lock:
                self.latest = max(mark, self.latest)


def era_of(order: int) -> int:
    """Return the era of an order."""
    return order >> _ERA


def order_of(era: int, revision: int) -> int:
    """Return the order of a revision in an era."""
    return (era << _ERA) + revision


def _follows(header: Header, sent: OrderMark) -> bool:
    """Return whether a store that had answered up to *sent* may answer this."""
    return header.revision >= sent.revision and sent.cluster in {0, header.cluster_id}
