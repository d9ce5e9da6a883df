"""Sticky: even loads, the fewest moves, against what a flow or all assignments can do."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip30.coordinator.assignors import Assignment, Item, StickyAssignor, Subscriber
from tests.unit.coordinator.assignors.groups import (
    NAMES,
    Group,
    Topics,
    check_valid,
    groups,
    owning,
    wanted,
)
from tests.unit.coordinator.assignors.optimum import Best, achieved, by_flow, by_trial

STICKY = StickyAssignor()
MANY = 400


@given(groups())
def test_each_item_goes_to_one_subscriber_of_its_topic(group: Group) -> None:
    topics, subscribers = group
    check_valid(topics, subscribers, STICKY.assign(topics, subscribers))


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_subscribers_does_not_matter(group: Group, random: Random) -> None:
    topics, subscribers = group
    assigned = STICKY.assign(topics, subscribers)
    random.shuffle(subscribers)
    assert STICKY.assign(dict(reversed(list(topics.items()))), subscribers) == assigned


@given(groups())
def test_a_repeated_assignment_moves_no_item(group: Group) -> None:
    topics, subscribers = group
    assigned = STICKY.assign(topics, subscribers)
    assert STICKY.assign(topics, owning(subscribers, assigned)) == assigned


@given(groups(most=3).filter(lambda group: len(wanted(*group)) <= 7))
def test_no_other_assignment_is_better(group: Group) -> None:
    topics, subscribers = group
    assert achieved(topics, subscribers, STICKY.assign(topics, subscribers)) == by_trial(
        topics, subscribers
    )


@given(groups(equal=True))
@settings(max_examples=MANY // 2)
def test_equal_topics_have_the_best_loads_with_the_fewest_moves(group: Group) -> None:
    topics, subscribers = group
    assigned = STICKY.assign(topics, subscribers)
    assert achieved(topics, subscribers, assigned) == by_flow(topics, subscribers)


@given(groups())
@settings(max_examples=MANY // 2)
def test_differing_topics_have_the_best_loads_with_the_fewest_moves(group: Group) -> None:
    topics, subscribers = group
    assigned = STICKY.assign(topics, subscribers)
    assert achieved(topics, subscribers, assigned) == by_flow(topics, subscribers)


@pytest.mark.parametrize("kind", ["changed", "uneven"])
def test_most_groups_have_the_best_loads_with_the_fewest_moves(kind: str) -> None:
    random = Random(429)  # noqa: S311  groups are no secret
    drawn = {"changed": changed_group, "uneven": uneven_group}[kind]
    for _ in range(MANY):
        topics, subscribers = drawn(random)
        assigned = STICKY.assign(topics, subscribers)
        assert achieved(topics, subscribers, assigned) == by_flow(topics, subscribers)


def changed_group(random: Random) -> Group:
    """Return members that own what they were assigned before members came and went."""
    topics = some_topics(random)
    before = [subscriber(random, topics, f"m{n}") for n in range(random.randint(2, 6))]
    owned = owning(before, STICKY.assign(topics, before))
    stayed = [one for one in owned if random.random() < 0.75]
    changed = [
        subscriber(random, topics, one.member_id, one.owned) if random.random() < 0.2 else one
        for one in stayed
    ]
    new = [subscriber(random, topics, f"n{n}") for n in range(random.randint(0, 2))]
    return topics, [*changed, *new]


def uneven_group(random: Random) -> Group:
    """Return members of which some own most of a topic, so that much has to move."""
    topics = some_topics(random)
    members = [subscriber(random, topics, f"m{n}") for n in range(random.randint(2, 8))]
    owned: dict[str, list[Item]] = {one.member_id: [] for one in members}
    for topic, count in topics.items():
        takers = [one.member_id for one in members if topic in one.topics]
        most = takers[:1]
        for partition in range(count):
            if takers and random.random() < 0.9:
                owned[random.choice(random.choice((most, takers)))].append(Item(topic, partition))
    return topics, owning(members, owned)


def some_topics(random: Random) -> Topics:
    return {name: random.randint(1, 6) for name in NAMES[: random.randint(2, 5)]}


def subscriber(
    random: Random, topics: Topics, member_id: str, owned: Sequence[Item] = ()
) -> Subscriber:
    some = frozenset(topic for topic in topics if random.random() < 0.5)
    return Subscriber(member_id=member_id, topics=some, owned=owned, generation=7)


def test_no_chain_of_a_large_group_makes_loads_more_even() -> None:
    random = Random(54)  # noqa: S311  groups are no secret
    topics = {f"t{number:02}": random.randint(1, 40) for number in range(30)}
    subscribers = [
        Subscriber(
            member_id=f"m{number:03}",
            topics=frozenset(random.sample(sorted(topics), random.randint(1, 6))),
        )
        for number in range(100)
    ]
    for _ in range(5):
        assigned = STICKY.assign(topics, subscribers)
        check_valid(topics, subscribers, assigned)
        check_no_chain(subscribers, assigned)
        stayed = random.sample(subscribers, 80)
        assigned = STICKY.assign(topics, owning(stayed, assigned))
        check_no_chain(stayed, assigned)
        subscribers = owning(subscribers, assigned)


def check_no_chain(subscribers: list[Subscriber], assigned: Assignment) -> None:
    """Check that items passed on from a member reach none that has two or more fewer."""
    passing = {
        one.member_id: {
            other.member_id
            for other in subscribers
            if other.topics & {item.topic for item in assigned[one.member_id]}
        }
        for one in subscribers
    }
    for start in passing:
        reached, waiting = {start}, [start]
        while waiting:
            new = passing[waiting.pop()] - reached
            reached |= new
            waiting.extend(new)
        assert all(len(assigned[one]) >= len(assigned[start]) - 1 for one in reached)


def test_an_item_reported_by_two_subscribers_has_no_owner() -> None:
    """If ``t0`` were kept by one of them, an item that has an owner would have to move."""
    subscribers = [
        Subscriber(
            member_id=member, topics={"t"}, owned=[Item("t", n) for n in owned], generation=1
        )
        for member, owned in (("a", (0, 1, 2)), ("b", (0,)))
    ]
    assert STICKY.assign({"t": 3}, subscribers) == {
        "a": [Item("t", 1), Item("t", 2)],
        "b": [Item("t", 0)],
    }


def test_the_optimum_is_found_by_both_ways() -> None:
    owner = Subscriber(
        member_id="a", topics={"t"}, owned=[Item("t", 0), Item("t", 1)], generation=1
    )
    other = Subscriber(member_id="b", topics={"t"})
    assert by_flow({"t": 2}, [owner, other]) == by_trial({"t": 2}, [owner, other]) == Best(2, 1)
