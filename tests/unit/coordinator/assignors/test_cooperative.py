"""Cooperative: an item is never with two members, and two rounds are enough (C43 to C48)."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.coordinator.assignors import (
    CooperativeStickyAssignor,
    Item,
    StickyAssignor,
    Subscriber,
)
from tests.unit.coordinator.assignors.groups import (
    NAMES,
    Group,
    check_subscribed,
    check_valid,
    groups,
    holders,
    moves,
)

COOPERATIVE = CooperativeStickyAssignor()
STICKY = StickyAssignor()
ITEM = Item("t", 0)


@given(groups())
def test_it_withholds_what_another_reports_and_nothing_else(group: Group) -> None:
    topics, subscribers = group
    assigned = COOPERATIVE.assign(topics, subscribers)
    check_subscribed(subscribers, assigned)
    given_out = holders(assigned)
    for item, member in holders(STICKY.assign(topics, subscribers)).items():
        reporting = [one for one in subscribers if item in one.owned]
        newest = max((one.generation for one in reporting), default=-1)
        with_others = any(one.generation == newest for one in reporting if one.member_id != member)
        assert given_out.get(item) == (None if with_others else member)


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_subscribers_does_not_matter(group: Group, random: Random) -> None:
    topics, subscribers = group
    assigned = COOPERATIVE.assign(topics, subscribers)
    random.shuffle(subscribers)
    assert COOPERATIVE.assign(topics, subscribers) == assigned


def reporting(member_id: str, generation: int, *topics: str) -> Subscriber:
    return Subscriber(
        member_id=member_id, topics=frozenset(topics), owned=[ITEM], generation=generation
    )


@pytest.mark.parametrize(
    ("subscribers", "holder"),
    [
        pytest.param([reporting("a", -1, "t")], "a", id="in no generation, but alone"),
        pytest.param([reporting("a", 1, "t"), reporting("b", 2, "t")], "b", id="newer"),
        pytest.param([reporting("a", 2, "t"), reporting("b", 2, "t")], None, id="both"),
        pytest.param(
            [reporting("a", 2, "t"), reporting("b", 2, "t"), reporting("c", 3, "t")],
            "c",
            id="newer than both",
        ),
        pytest.param([reporting("a", 1), reporting("b", -1, "t")], None, id="not given up in time"),
    ],
)
def test_a_report_counts_in_the_newest_generation_only(
    subscribers: list[Subscriber], holder: str | None
) -> None:
    assigned = COOPERATIVE.assign({"t": 1}, subscribers)
    assert holders(assigned).get(ITEM) == holder


class CooperativeMembers:
    """Members that have items; one that loses some gives them up only as it takes its part up."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.subscribers: list[Subscriber] = []
        self.topics: dict[str, int] = {}
        self.generation = 0
        self.born = 0

    def change(self) -> None:
        """Let members leave, change their topics, and come; let topics change."""
        self.topics = {name: self.random.randint(0, 6) for name in NAMES}
        stayed = [one for one in self.subscribers if self.random.random() < 0.75]
        for _ in range(self.random.randint(0, 3)):
            self.born += 1
            stayed.append(Subscriber(member_id=f"m{self.born}", topics=self.some_topics()))
        self.subscribers = [
            self.resubscribed(one) if self.random.random() < 0.3 else one for one in stayed
        ]

    def resubscribed(self, one: Subscriber) -> Subscriber:
        """Return a member that has given up, before it joins, what it does not want (C46)."""
        topics = self.some_topics()
        return replace(
            one, topics=topics, owned=[item for item in one.owned if item.topic in topics]
        )

    def some_topics(self) -> frozenset[str]:
        return frozenset(name for name in NAMES if self.random.random() < 0.5)

    def round(self) -> None:
        self.generation += 1
        before = {one.member_id: set(one.owned) for one in self.subscribers}
        assigned = COOPERATIVE.assign(self.topics, self.subscribers)
        for item, member in holders(assigned).items():
            assert not any(item in part for other, part in before.items() if other != member)
        self.subscribers = [
            replace(one, owned=assigned[one.member_id], generation=self.generation)
            for one in self.subscribers
        ]


def test_an_item_is_never_with_two_members_and_two_rounds_are_enough() -> None:
    members = CooperativeMembers(Random(429))  # noqa: S311  groups are no secret
    for _ in range(300):
        members.change()
        expected = STICKY.assign(members.topics, members.subscribers)
        moved = moves(members.topics, members.subscribers, expected)
        members.round()
        withheld = sum(map(len, expected.values())) - sum(
            len(one.owned) for one in members.subscribers
        )
        assert withheld == moved
        members.round()
        settled = {one.member_id: list(one.owned) for one in members.subscribers}
        check_valid(members.topics, members.subscribers, settled)
        assert sorted(map(len, settled.values())) == sorted(map(len, expected.values()))
        members.round()
        assert settled == {one.member_id: list(one.owned) for one in members.subscribers}


@pytest.mark.case("K43")
def test_items_of_an_absent_member_are_kept_for_it_and_not_withheld() -> None:
    topics, all_of_it = {"t": 4}, frozenset("t")
    items = [Item("t", number) for number in range(4)]
    away = Subscriber(
        member_id="away", topics=all_of_it, owned=items, generation=1, is_present=False
    )
    newcomer = Subscriber(member_id="new", topics=all_of_it)
    assert COOPERATIVE.assign(topics, [away, newcomer]) == {"away": items[:2], "new": items[2:]}
    there = replace(away, is_present=True)
    assert COOPERATIVE.assign(topics, [there, newcomer]) == {"away": items[:2], "new": []}
