"""Cooperative: sticky in two rounds, so that an item is never with two subscribers."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from kip30.coordinator.assignors.base import Assignment, Subscriber, holders
from kip30.coordinator.assignors.sticky import StickyAssignor


class CooperativeStickyAssignor(StickyAssignor):
    """KIP-429, and Kafka's CooperativeStickyAssignor.

    It assigns as `StickyAssignor` does, and then *withholds* each item that a present subscriber
    other than its new owner still reports as owned: no subscriber gets it in this round. Its owner
    sees that it must give it up, and joins the next round without it. In that round the item is
    free, and nothing else moves, unless members or topics have changed again.

    A report counts only in the highest generation in which the item is reported. If two subscribers
    report it there, both must give it up.
    """

    name = "cooperative-sticky"
    cooperative = True

    @override
    def assign(self, topics: Mapping[str, int], subscribers: Sequence[Subscriber]) -> Assignment:
        holding = holders(topics, subscribers)
        return {
            member: [
                item
                for item in items
                if all(one.member_id == member for one in holding.get(item, ()))
            ]
            for member, items in super().assign(topics, subscribers).items()
        }
