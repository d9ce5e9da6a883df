"""Range: of each topic, neighbouring partitions."""

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


class RangeAssignor(Assignor):
    """Kafka's RangeAssignor, without racks.

    Each topic for itself is cut into as many ranges as it has subscribers, in their order; the
    first ranges are longer by one if it does not divide. So members with the same topics, of
    equally many partitions, get the same partitions of each; and with many small topics the
    first subscribers get the most.
    """

    name = "range"

    @override
    def assign(self, topics: Mapping[str, int], subscribers: Sequence[Subscriber]) -> Assignment:
        members = in_order(subscribers)
        assigned: dict[str, list[Item]] = {member.member_id: [] for member in members}
        for topic, indices in takers(topics, members).items():
            size, longer = divmod(topics[topic], len(indices))
            start = 0
            for place, index in enumerate(indices[: topics[topic]]):
                end = start + size + (place < longer)
                items = (Item(topic, partition) for partition in range(start, end))
                assigned[members[index].member_id].extend(items)
                start = end
        return assigned
