"""Range and round robin: Kafka's results, as its documentation spells them out."""

from itertools import chain
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kip30.coordinator.assignors import (
    Assignor,
    Item,
    RangeAssignor,
    RoundRobinAssignor,
    Subscriber,
)
from tests.unit.coordinator.assignors.groups import Group, check_valid, groups, wanted

ASSIGNORS = st.sampled_from([RangeAssignor(), RoundRobinAssignor()])


def in_kafkas_order(subscribers: list[Subscriber]) -> list[Subscriber]:
    static = [one for one in subscribers if one.group_instance_id]
    others = [one for one in subscribers if not one.group_instance_id]
    return [
        *sorted(static, key=lambda one: one.group_instance_id or ""),
        *sorted(others, key=lambda one: one.member_id),
    ]


@given(ASSIGNORS, groups())
def test_each_item_goes_to_one_subscriber_of_its_topic(assignor: Assignor, group: Group) -> None:
    topics, subscribers = group
    check_valid(topics, subscribers, assignor.assign(topics, subscribers))


@given(ASSIGNORS, groups(), st.randoms(use_true_random=False))
def test_the_order_of_subscribers_does_not_matter(
    assignor: Assignor, group: Group, random: Random
) -> None:
    topics, subscribers = group
    assigned = assignor.assign(topics, subscribers)
    random.shuffle(subscribers)
    assert assignor.assign(topics, subscribers) == assigned


@given(groups())
def test_range_gives_neighbours_and_the_first_one_more(group: Group) -> None:
    topics, subscribers = group
    assigned = RangeAssignor().assign(topics, subscribers)
    for topic, count in topics.items():
        takers = [one for one in in_kafkas_order(subscribers) if topic in one.topics]
        parts = [
            [item for item in assigned[one.member_id] if item.topic == topic] for one in takers
        ]
        sizes = [len(part) for part in parts]
        assert sizes == sorted(sizes, reverse=True)
        assert not takers or sizes[0] - sizes[-1] <= 1
        assert list(chain(*parts)) == [Item(topic, n) for n in range(count)] or not takers


@given(groups())
def test_round_robin_asks_one_subscriber_after_the_other(group: Group) -> None:
    topics, subscribers = group
    circle = in_kafkas_order(subscribers)
    expected: dict[str, list[Item]] = {one.member_id: [] for one in subscribers}
    for item in sorted(wanted(topics, subscribers)):
        while item.topic not in circle[0].topics:
            circle.append(circle.pop(0))
        expected[circle[0].member_id].append(item)
        circle.append(circle.pop(0))
    assert RoundRobinAssignor().assign(topics, subscribers) == expected
