"""One order over all answers of a backend, place by place, also over servers that came back empty.

Consul returns with each answer the index of the last write that it covers, for *its* keys. That
index goes back when the store lost its data, and when it forgets what was deleted long ago. Then
another era begins for the place, which is later than all earlier ones.

The state of a place is kept while it is watched, or a request about it is under way. If the place
is requested again later, it begins with an era that was never used: an answer sent from then on is
later than everything that was forgotten.

One member is a place of its own within that of its group, because its record has an earlier index
than the whole group. But it has the eras of its group, so that claims, which are ordered by the
group, can be compared with it.
"""

import itertools
import threading
from typing import NamedTuple
from weakref import WeakValueDictionary

_ERA = 64


class PlaceOrder:
    """Progress of the answers about one place. Known for as long as it is referred to."""

    __slots__ = ("__weakref__", "at", "era", "within")

    def __init__(self, era: int) -> None:
        """Start without an answer."""
        # The era, and the greatest index that was answered in it. All three are written under the
        # lock of `AnswerOrder`.
        self.era = era
        self.at = 0
        # The place whose eras this one shares: the group, if this is a member.
        self.within: PlaceOrder | None = None


class OrderMark(NamedTuple):
    """Progress of *place_order* at some moment."""

    place_order: PlaceOrder
    era: int
    at: int


class AnswerOrder:
    """Puts the answers about each place in order. Thread-safe."""

    def __init__(self) -> None:
        """Start without an answer."""
        # Watches and requests under way refer to the place_orders; this does not.
        self._place_orders = WeakValueDictionary[str, PlaceOrder]()
        # The next era of any place. None is used twice: see above about forgotten places.
        self._eras = itertools.count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many places are known."""
        return len(self._place_orders)

    def mark(self, place: str, within: str = "") -> OrderMark:
        """Return how far answers about *place* have come; to be called before a request is sent.

        If it is *within* another place, it shares the eras of that one.
        """
        with self._lock:
            place_order = self._place_order(place)
            if within:
                outer = place_order.within = self._place_order(within)
                if place_order.era != outer.era:
                    place_order.era, place_order.at = outer.era, 0
            return OrderMark(place_order, place_order.era, place_order.at)

    def of(self, index: int, sent: OrderMark) -> int:
        """Return the order of an answer, given `mark` of its place as it was when it was sent."""
        place_order = sent.place_order
        with self._lock:
            era = sent.era if index >= sent.at else self._later(sent)
            place_order.era, place_order.at = max((place_order.era, place_order.at), (era, index))
            if place_order.within is not None and era > place_order.within.era:
                place_order.within.era, place_order.within.at = era, index
        return (era << _ERA) + index

    def _place_order(self, place: str) -> PlaceOrder:
        place_order = self._place_orders.get(place)
        if place_order is None:
            place_order = self._place_orders[place] = PlaceOrder(next(self._eras))
        return place_order

    def _later(self, sent: OrderMark) -> int:
        """Return the era that has begun since *sent*, or begin it."""
        known = (sent.place_order.within or sent.place_order).era
        return known if known > sent.era else next(self._eras)
