"""Sticky: loads as even as topics allow, and of all such assignments one with the fewest moves."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from typing_extensions import override

from kip30.coordinator.assignors.base import (
    Assignment,
    Assignor,
    Item,
    Subscriber,
    in_order,
    reports,
    takers,
)
from kip30.coordinator.assignors.min_cost_flow import fewest_moves


class StickyAssignor(Assignor):
    """KIP-54's promises without exception; Kafka's StickyAssignor comes close to them.

    * Balance: no items can be passed on, through any number of subscribers, so that a load
      comes closer to one that is less by two or more. With equal topics all loads are the same,
      or differ by one.
    * Stickiness: of all assignments with these loads, it is one in which the fewest items leave
      an owner that is still there and still subscribes to their topic.

    The owner of an item is the one subscriber that reports it in the highest generation in
    which it is reported. How the partitions of one topic spread is not promised.
    """

    name = "sticky"

    @override
    def assign(self, topics: Mapping[str, int], subscribers: Sequence[Subscriber]) -> Assignment:
        members = in_order(subscribers)
        by_topic = takers(topics, members)
        owned = _owned(topics, members)
        if len({tuple(indices) for indices in by_topic.values()}) <= 1:
            parts = _with_equal_topics(topics, by_topic, owned)
        else:
            parts = _with_differing_topics(topics, by_topic, owned)
        return {member.member_id: sorted(part) for member, part in zip(members, parts, strict=True)}


def _owned(topics: Mapping[str, int], members: Sequence[Subscriber]) -> list[list[Item]]:
    """Return, by member, the items of its topics that it and no other owns, in order."""
    owned: dict[str, list[Item]] = {member.member_id: [] for member in members}
    for item, reporters in sorted(reports(topics, members).items()):
        if len(reporters) == 1 and item.topic in reporters[0].topics:
            owned[reporters[0].member_id].append(item)
    return list(owned.values())


def _with_equal_topics(
    topics: Mapping[str, int],
    by_topic: Mapping[str, Sequence[int]],
    owned: Sequence[Sequence[Item]],
) -> list[list[Item]]:
    """Let every member keep its quota, and deal the rest in a circle. Linear but for sorting."""
    takers_of_all = next(iter(by_topic.values()), ())
    quotas = _quotas(sum(topics[topic] for topic in by_topic), takers_of_all, owned)
    parts = [list(items[: quotas[index]]) for index, items in enumerate(owned)]
    lacking = deque(index for index in takers_of_all if len(parts[index]) < quotas[index])
    for item in _free(topics, by_topic, parts):
        taker = lacking.popleft()
        parts[taker].append(item)
        if len(parts[taker]) < quotas[taker]:
            lacking.append(taker)
    return parts


def _quotas(
    total: int, takers_of_all: Sequence[int], owned: Sequence[Sequence[Item]]
) -> Counter[int]:
    """Return how many of *total* items each gets: as evenly as it divides.

    If it does not divide, the members that own more than the others get are given one more: so
    each of them loses one item less.
    """
    if not takers_of_all:
        return Counter()
    least, longer = divmod(total, len(takers_of_all))
    first = sorted(takers_of_all, key=lambda index: len(owned[index]) <= least)
    return Counter({index: least + (place < longer) for place, index in enumerate(first)})


def _with_differing_topics(
    topics: Mapping[str, int],
    by_topic: Mapping[str, Sequence[int]],
    owned: Sequence[Sequence[Item]],
) -> list[list[Item]]:
    """Let `fewest_moves` decide on counts; of each topic a member keeps the first items."""
    names = list(by_topic)
    numbers = {topic: number for number, topic in enumerate(names)}
    counts = [Counter(numbers[item.topic] for item in items) for items in owned]
    taken = Counter(item.topic for items in owned for item in items)
    free = {numbers[topic]: topics[topic] - taken[topic] for topic in by_topic}
    placement = fewest_moves(list(by_topic.values()), counts, free)
    lacking: defaultdict[str, deque[int]] = defaultdict(deque)
    parts: list[list[Item]] = []
    for index, held in enumerate(placement.held):
        room = Counter({names[number]: count for number, count in held.items()})
        parts.append([])
        for item in owned[index]:
            if room[item.topic]:
                room[item.topic] -= 1
                parts[index].append(item)
        for topic, count in room.items():
            lacking[topic].extend([index] * count)
    for item in _free(topics, by_topic, parts):
        parts[lacking[item.topic].popleft()].append(item)
    return parts


def _free(
    topics: Mapping[str, int], by_topic: Iterable[str], parts: Iterable[Iterable[Item]]
) -> Iterator[Item]:
    """Yield the items of topics with subscribers that are in no part, in order."""
    kept = {item for part in parts for item in part}
    for topic in by_topic:
        for partition in range(topics[topic]):
            if (item := Item(topic, partition)) not in kept:
                yield item
