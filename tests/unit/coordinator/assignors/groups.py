"""Groups of subscribers to assign to, and what every assignment has to hold to."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from kip30.coordinator.assignors import Assignment, Item, Subscriber

Topics = Mapping[str, int]
Group = tuple[Topics, list[Subscriber]]

NAMES = ("a", "b", "c", "d", "e")


@st.composite
def groups(draw: st.DrawFn, *, most: int = 6, equal: bool = False) -> Group:
    """Draw topics and subscribers, with reports that contradict each other or are of no use."""
    topics = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6)))
    some_topics = st.frozensets(st.sampled_from((*NAMES, "missing")))
    of_all = draw(some_topics)
    items = st.builds(Item, st.sampled_from(("missing", *NAMES)), st.integers(0, 6))
    subscribers = [
        Subscriber(
            member_id=f"m{number}",
            topics=of_all if equal else draw(some_topics),
            owned=tuple(draw(st.lists(items, max_size=12))),
            generation=draw(st.sampled_from((1, 2, -1))),
            group_instance_id=draw(st.none() | st.just(f"i{9 - number}")),
        )
        for number in range(draw(st.integers(0, most)))
    ]
    return topics, subscribers


def owning(
    subscribers: Iterable[Subscriber], assignment: Assignment, generation: int = 7
) -> list[Subscriber]:
    """Return the subscribers with what *assignment* gave them; new ones own nothing."""
    return [
        replace(one, owned=tuple(assignment.get(one.member_id, ())), generation=generation)
        for one in subscribers
    ]


def wanted(topics: Topics, subscribers: Collection[Subscriber]) -> set[Item]:
    """Return the items that have a subscriber."""
    return {
        Item(topic, partition)
        for topic, count in topics.items()
        if any(topic in one.topics for one in subscribers)
        for partition in range(count)
    }


def holders(assignment: Assignment) -> dict[Item, str]:
    """Return the member that has each item, of which there must be no more than one."""
    given = [(item, member) for member, items in assignment.items() for item in items]
    found = dict(given)
    assert len(found) == len(given), "an item was given out twice"
    return found


def check_valid(topics: Topics, subscribers: Sequence[Subscriber], assignment: Assignment) -> None:
    assert assignment.keys() == {one.member_id for one in subscribers}
    check_subscribed(subscribers, assignment)
    assert holders(assignment).keys() == wanted(topics, subscribers)


def check_subscribed(subscribers: Iterable[Subscriber], assignment: Assignment) -> None:
    for one in subscribers:
        assert {item.topic for item in assignment[one.member_id]} <= one.topics


def moves(topics: Topics, subscribers: Sequence[Subscriber], assignment: Assignment) -> int:
    """Count the items that leave an owner that is still there and subscribes to their topic."""
    now = holders(assignment)
    owner_of = owners(topics, subscribers)
    return sum(now[item] != owner for item, owner in owner_of.items())


def owners(topics: Topics, subscribers: Sequence[Subscriber]) -> dict[Item, str]:
    """Return the owner of each item that has one: as the rule says it, item by item."""
    found: dict[Item, str] = {}
    for item in wanted(topics, subscribers):
        reporting = [one for one in subscribers if item in one.owned]
        newest = max((one.generation for one in reporting), default=-1)
        last = [one for one in reporting if one.generation == newest]
        if len(last) == 1 and item.topic in last[0].topics:
            found[item] = last[0].member_id
    return found


def squares(assignment: Assignment) -> int:
    """Return the sum of squared loads: the least there is belongs to the most even loads."""
    return sum(len(items) ** 2 for items in assignment.values())
