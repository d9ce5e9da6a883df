"""Published cases of Kafka and kafka-python: `cases.json` names the source of each."""

from collections.abc import Mapping

import pytest

from kip30.coordinator.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    Item,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscriber,
)
from tests.unit.coordinator.assignors.cases import Case, of_kind
from tests.unit.coordinator.assignors.groups import check_valid, holders, moves, wanted

ASSIGNORS: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)


@pytest.mark.parametrize("case", of_kind("partitions"))
def test_partitions(case: Case) -> None:
    assignor = next(one for one in ASSIGNORS if one.name == case["assignor"])
    before: Assignment = {}
    for step in case["steps"]:
        owned = before if step.get("owned_from_previous") else None
        subscribers = [subscriber(member, owned) for member in step["members"]]
        before = assignor.assign(case["topics"], subscribers)
        if not assignor.cooperative:
            check_valid(case["topics"], subscribers, before)
        Outcome(case["topics"], subscribers, before).check(step["expect"])


def subscriber(member: Case, before: Assignment | None) -> Subscriber:
    owned = [item(text) for text in member.get("owned", ())]
    return Subscriber(
        member_id=member["id"],
        topics=frozenset(member["topics"]),
        owned=owned if before is None else before.get(member["id"], ()),
        generation=member.get("generation", -1 if before is None else 1),
        group_instance_id=member.get("instance"),
    )


def item(text: str) -> Item:
    topic, _, partition = text.rpartition("-")
    return Item(topic, int(partition))


class Outcome:
    """One step of a case; every key of what is expected has a method of the same name."""

    def __init__(
        self, topics: Mapping[str, int], subscribers: list[Subscriber], assignment: Assignment
    ) -> None:
        self.topics = topics
        self.subscribers = subscribers
        self.assignment = assignment
        self.counts = sorted(len(items) for items in assignment.values())

    def check(self, expected: Case) -> None:
        for key, value in expected.items():
            if key != "reference_exact":
                getattr(self, key)(value)

    def exact(self, parts: Mapping[str, list[str]]) -> None:
        assert self.assignment == {member: list(map(item, part)) for member, part in parts.items()}

    def loads(self, counts: list[int]) -> None:
        assert self.counts == counts

    loads_round = loads

    def max_diff(self, most: int) -> None:
        assert self.counts[-1] - self.counts[0] <= most

    def max_moves(self, most: int) -> None:
        assert moves(self.topics, self.subscribers, self.assignment) <= most

    def keeps(self, parts: Mapping[str, list[str]]) -> None:
        for member, part in parts.items():
            assert set(map(item, part)) <= set(self.assignment[member])

    def withheld(self, count: int) -> None:
        everything = wanted(self.topics, self.subscribers)
        assert len(everything - holders(self.assignment).keys()) == count

    def kip54_balanced(self, _: object) -> None:
        for one in self.subscribers:
            for other in self.subscribers:
                passing = {i.topic for i in self.assignment[one.member_id]} & other.topics
                least = len(self.assignment[one.member_id]) - 1 if passing else 0
                assert len(self.assignment[other.member_id]) >= least

    def stretch(self, expected: Case) -> None:
        self.check(expected)
