"""`PartitionCoordinator` on the embedded store."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from kip30 import GroupError, PluginLocator, UsageError
from kip30.coordinator import (
    AssignmentMetadata,
    CooperativeStickyAssignor,
    Item,
    PartitionCoordinator,
    RangeAssignor,
    ShareGuard,
    storage_of_share,
)
from kip30.coordinator.assignors import Subscriber
from kip30.coordinator.item_texts import encode, ranges_of
from kip30.coordinator.partition_coordinator import check_assignment
from kip30.coordinator.work_items import ITEMS_TOPIC, numbered_item
from kip30.errors import FencedInstanceError, IllegalGenerationError
from kip30_conformance.clients.item_coordinator import await_shared, quick_config
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.polling import eventually

from .conftest import OpenClient

TOPICS = {"a": 4, "b": 2, "c": 3}


class Listener:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Item]]] = []
        self.failing = 0
        self.revoked_raises = False

    def on_assigned(self, items: Sequence[Item]) -> None:
        self.calls.append(("assigned", list(items)))
        if self.failing:
            self.failing -= 1
            raise ValueError("not now")

    def on_revoked(self, items: Sequence[Item]) -> None:
        self.calls.append(("revoked", list(items)))
        if self.revoked_raises:
            raise TypeError("not begun")

    def on_lost(self, items: Sequence[Item]) -> None:
        self.calls.append(("lost", list(items)))

    def held(self) -> set[Item]:
        held: set[Item] = set()
        for name, items in self.calls:
            held = held | set(items) if name == "assigned" else held - set(items)
        return held


Start = Callable[..., tuple[PartitionCoordinator, Listener]]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as ends:

        def start_one(
            client: PluginLocator,
            *subscription: str,
            topics: Callable[[], Mapping[str, int]] = lambda: TOPICS,
            **more: Any,
        ) -> tuple[PartitionCoordinator, Listener]:
            listener = Listener()
            one = PartitionCoordinator(
                client,
                "g",
                subscription=subscription or None,
                topics=topics,
                listener=listener,
                config=quick_config(client, **more.pop("config", {})),
                **more,
            )
            ends.callback(one.close)
            one.start()
            return one, listener

        yield start_one


def await_items(*members: tuple[PartitionCoordinator, Listener], count: int) -> None:
    """Wait until *count* items are shared, and each member has at least one.

    A new member has no item at first, and a valid share, until the others have given some up.
    """

    def are_shared() -> bool:
        shares = [listener.held() for _, listener in members]
        sizes = [len(share) for share in shares]
        are_valid = all(
            one.is_valid() and one.owned == listener.held() for one, listener in members
        )
        is_shared = len(set().union(*shares)) == sum(sizes) == count
        return are_valid and all(sizes) and is_shared

    eventually(are_shared, within=20, what=f"{count} items are shared")


@pytest.mark.case("K43")
@pytest.mark.case("K45")
def test_items_that_stay_appear_in_no_listener_call(client: PluginLocator, start: Start) -> None:
    first = start(client, "a", "b")
    await_items(first, count=6)
    before = len(first[1].calls)
    second = start(client, "a", "b")
    await_items(first, second, count=6)
    assert len(first[1].held()) == 3
    after = first[1].calls[before:]
    assert [name for name, _ in after] == ["revoked"]
    assert len(after[0][1]) == 3
    second[0].close()
    await_items(first, count=6)
    assert second[1].calls[-1][0] == "revoked"


def test_eager_members_give_up_everything(client: PluginLocator, start: Start) -> None:
    eager = {"assignors": [RangeAssignor()]}
    first = start(client, "a", **eager)
    await_items(first, count=4)
    second = start(client, "a", **eager)
    await_items(first, second, count=4)
    assert ("revoked", [Item("a", number) for number in range(4)]) in first[1].calls


@pytest.mark.case("K46")
def test_unsubscribed_items_are_revoked_before_new_items_are_assigned(
    client: PluginLocator, start: Start
) -> None:
    first = start(client, "a", "b")
    await_items(first, count=6)
    first[0].subscribe(["b", "c"])
    await_items(first, count=5)
    names = [(name, {item.topic for item in items}) for name, items in first[1].calls[1:]]
    assert names == [("revoked", {"a"}), ("assigned", {"c"})]


def test_a_change_of_topics_is_noticed_by_the_leader(client: PluginLocator, start: Start) -> None:
    topics = {"a": 2}
    first = start(client, "a", "d", topics=lambda: dict(topics), refresh_seconds=0.1)
    second = start(client, "a", topics=dict, refresh_seconds=0.1, config={"eligible": False})
    await_items(first, second, count=2)
    topics["a"], topics["d"] = 4, 1
    await_items(first, second, count=5)


@pytest.mark.parametrize("revoked_raises", [False, True])
def test_an_on_assigned_that_raises_gives_all_up_and_is_called_again(
    client: PluginLocator, *, revoked_raises: bool
) -> None:
    one = PartitionCoordinator(
        client,
        "g",
        subscription=["a"],
        topics=lambda: TOPICS,
        listener=(listener := Listener()),
        config=quick_config(client),
    )
    listener.failing, listener.revoked_raises = 1, revoked_raises
    with one:
        with pytest.raises(ValueError, match="not now"):
            one.ensure_active_group(20)
        assert one.owned == frozenset()
        # At once: another member may get them before this one is called again.
        assert listener.held() == set()
        assert one.ensure_active_group(20)
        assert len(one.owned) == 4
        assert listener.held() == one.owned
    names = ["assigned", "revoked", "assigned", "revoked"]
    assert [name for name, _ in listener.calls] == names


@pytest.mark.case("K38")
def test_a_static_member_has_its_partitions_again(open_client: OpenClient, start: Start) -> None:
    first = start(open_client(), "a", "b")
    static = {"config": {"group_instance_id": "k", "eligible": False}}
    second = start(open_client(), "a", "b", **static)
    await_items(first, second, count=6)
    share, number = second[1].held(), first[0].generation.generation
    second[0].close()
    again = start(open_client(), "a", "b", **static)
    await_items(first, again, count=6)
    assert again[1].held() == share
    assert first[0].generation.generation == number


def test_a_member_may_subscribe_to_all_topics_that_exist(
    client: PluginLocator, start: Start
) -> None:
    exist = dict(TOPICS)
    every = start(client, topics=lambda: dict(exist), refresh_seconds=0.05)
    await_items(every, count=9)
    some = start(client, "a")
    await_items(every, some, count=9)
    exist |= {"d": 2}
    some[0].close()
    await_items(every, count=11)
    del exist["a"]
    await_items(every, count=7)
    every[0].subscribe(["b"])
    await_items(every, count=2)


# -- guards of single items


def guards_of(one: PartitionCoordinator, instance: str | None = None) -> dict[int, ShareGuard]:
    key = instance or one.member_id
    held = (key, one.member_id, one.since)
    return {item.partition: ShareGuard("g", *held, item, one.history) for item in sorted(one.owned)}


@pytest.mark.case("V15")
def test_the_guard_of_an_item_ends_with_the_item_and_not_with_its_neighbours(
    client: PluginLocator, start: Start
) -> None:
    topics = {"topics": lambda: {ITEMS_TOPIC: 4}}
    first = start(client, ITEMS_TOPIC, **topics)
    await_items(first, count=4)
    former = guards_of(first[0])
    second = start(client, ITEMS_TOPIC, **topics)
    await_items(first, second, count=4)
    assert first[0].since > former[0].since
    stays, moved = guards_of(first[0]).keys(), guards_of(second[0]).keys()
    for place in stays:
        storage_of_share(client, former[place]).set("n", "stays")
    for place in moved:
        with pytest.raises(IllegalGenerationError, match=f"item {place} of"):
            storage_of_share(client, former[place]).set("n", "moved")
        mine = guards_of(second[0])[place]
        storage_of_share(client, mine).set("n", "mine")
        later = mine._replace(since=mine.since + 1)
        with pytest.raises(IllegalGenerationError):
            storage_of_share(client, later).set("n", "from later")


@pytest.mark.case("V15")
def test_the_guard_of_an_item_of_a_replaced_instance_is_refused_by_name(
    open_client: OpenClient, start: Start
) -> None:
    admin = open_client()
    static = {"config": {"group_instance_id": "k"}, "topics": lambda: {ITEMS_TOPIC: 2}}
    old = start(open_client(), ITEMS_TOPIC, **static)
    await_items(old, count=2)
    former = guards_of(old[0], "k")[1]
    storage_of_share(admin, former).set("n", "1")
    new = start(open_client(), ITEMS_TOPIC, **static)
    await_items(new, count=2)
    with pytest.raises(FencedInstanceError):
        storage_of_share(admin, former).set("n", "2")
    storage_of_share(admin, guards_of(new[0], "k")[1]).set("n", "3")


@pytest.mark.case("V15")
def test_the_guard_of_an_item_is_refused_where_no_items_are_divided(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.started(client)
    await_shared(one)
    guard = ShareGuard("g", one.member_id, one.member_id, one.since, numbered_item(0), one.history)
    with pytest.raises(IllegalGenerationError):
        storage_of_share(client, guard).set("n", "1")


@pytest.mark.case("K49")
def test_usage_is_checked(client: PluginLocator) -> None:
    given: dict[str, Any] = {
        "subscription": ["a"],
        "topics": lambda: TOPICS,
        "listener": Listener(),
    }
    wrong: list[dict[str, Any]] = [
        {"subscription": "a"},
        {"subscription": [1]},
        {"assignors": []},
        {"assignors": [RangeAssignor(), CooperativeStickyAssignor()]},
    ]
    for one in wrong:
        with pytest.raises(UsageError):
            PartitionCoordinator(client, "g", **{**given, **one})


class _Withholding(CooperativeStickyAssignor):
    """A foreign assignor: it does not know that a subscriber may be absent."""

    @override
    def assign(
        self, topics: Mapping[str, int], subscribers: Sequence[Subscriber]
    ) -> Mapping[str, Sequence[Item]]:
        return super().assign(topics, [replace(one, is_present=True) for one in subscribers])


@pytest.mark.case("K44")
@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor(), _Withholding()])
def test_no_round_follows_for_what_only_an_absent_member_has(
    client: PluginLocator, assignor: CooperativeStickyAssignor
) -> None:
    one = PartitionCoordinator(
        client,
        "g",
        subscription=["a"],
        topics=lambda: TOPICS,
        listener=Listener(),
        assignors=[assignor],
    )
    name = assignor.name
    said = {"topics": ["a"], "owned": {}, "generation": -1}
    owning = encode({**said, "owned": ranges_of([Item("a", n) for n in range(4)]), "generation": 3})
    away = AssignmentMetadata("x", "k", owning, is_present=False)
    others = AssignmentMetadata("y", None, encode(said))
    shares = one.perform_assignment("y", name, [away, others])
    assert not one.follow_up()
    assert bool(shares["y"]) == (type(assignor) is CooperativeStickyAssignor)
    one.perform_assignment("y", name, [away._replace(is_present=True), others])
    assert one.follow_up()


@pytest.mark.case("K43")
def test_an_assignment_that_must_not_be_published_is_refused() -> None:
    owner = Subscriber(member_id="x", topics=frozenset("a"), owned=[Item("a", 0)], generation=1)
    other = Subscriber(member_id="y", topics=frozenset("ab"))
    item, free = Item("a", 0), Item("a", 1)

    def check(assigned: Mapping[str, Sequence[Item]], *, is_cooperative: bool = True) -> int:
        return check_assignment(assigned, [owner, other], TOPICS, is_cooperative=is_cooperative)

    assert check({"x": [item], "y": [free]}) == 2
    assert check({"y": [item]}, is_cooperative=False) == 1
    wrong: list[dict[str, list[Item]]] = [
        {"y": [item]},
        {"x": [free], "y": [free]},
        {"x": [Item("b", 0)]},
        {"z": [free]},
    ]
    for one in wrong:
        with pytest.raises(GroupError):
            check(one)
    owner = replace(owner, is_present=False)
    assert check({"y": [item]}) == 1
