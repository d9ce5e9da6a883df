"""Round robin: one partition after the other, to one subscriber after the other."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from typing_extensions import override

from kip30.coordinator.assignors.base import (
    Assignment,
    Assignor,
    Item,
    Subscriber,
    in_order,
    takers,
)


class RoundRobinAssignor(Assignor):
    """Kafka's RoundRobinAssignor.

    The partitions of all topics, in order, are dealt to the subscribers in a circle that continues
    from topic to topic. A subscriber without the current topic is skipped, and not compensated
    later: where topics differ, loads may differ more than necessary.
    """

    name = "roundrobin"

    @override
    def assign(self, topics: Mapping[str, int], subscribers: Sequence[Subscriber]) -> Assignment:
        members = in_order(subscribers)
        assigned: dict[str, list[Item]] = {member.member_id: [] for member in members}
        following = 0  # the member that is asked first for the next partition
        for topic, indices in takers(topics, members).items():
            first = bisect_left(indices, following)
            for partition in range(topics[topic]):
                index = indices[(first + partition) % len(indices)]
                assigned[members[index].member_id].append(Item(topic, partition))
                following = index + 1
        return assigned
