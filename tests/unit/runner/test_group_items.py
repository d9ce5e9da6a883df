"""Items of a group on the embedded store, handed out one by one: new, kept and lost ones."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import pytest
from typing_extensions import override

from kip30.config.loading import load
from kip30.coordinator import Item
from kip30.errors import FencedInstanceError
from kip30.runner.group_items import GroupItem, GroupItems, _ItemHandover
from kip30.runner.group_member import ListMember, WorkList
from kip30.runner.item_lists import FixedItems
from kip30_conformance.polling import time_scale

from .field import PATIENCE, TIMEOUT, eventually

ITEMS = ["a", "b", "c", "d"]
MANY = 1000

Join = Callable[..., GroupItems]


@pytest.fixture
def join(tmp_path: Path) -> Generator[Join]:
    with ExitStack() as ends:

        def join_one(instance: str | None = None) -> GroupItems:
            properties = {
                "plugin.backend": "embedded",
                "plugin.embedded.directory": str(tmp_path),
                "plugin.session.timeout.ms": str(round(TIMEOUT * time_scale() * 1000)),
                "plugin.operation.timeout.ms": str(round(TIMEOUT * time_scale() * 1000)),
            }
            work = WorkList(
                group="g", items=FixedItems(ITEMS), client="n", instance=instance, grace_seconds=0.1
            )
            return ends.enter_context(GroupItems(load(properties), work))

        yield join_one


def take(one: GroupItems, count: int) -> list[GroupItem]:
    return [eventually(lambda: one.wait(0.0)) for _ in range(count)]


def wanted(items: list[GroupItem]) -> list[GroupItem]:
    return [item for item in items if item.wanted_back.is_set()]


def test_items_are_handed_out_once_in_the_order_of_the_list(join: Join) -> None:
    one = join()
    items = take(one, 4)
    found = [(item.items, item.guard_text) for item in items]
    assert found == [([name], str(place)) for place, name in enumerate(ITEMS)]
    assert one.ready() == 0
    assert one.wait(0.0) is None
    one.give_up(items[2])
    assert take(one, 1)[0].item.partition == 2


def test_an_item_moves_once_the_runner_has_given_it_up(join: Join) -> None:
    first, second = join(), join()
    items = take(first, 4)
    eventually(lambda: second.wait(0.0) or len(wanted(items)) == 2)
    moving = wanted(items)
    assert second.wait(TIMEOUT * time_scale() / 4) is None
    for item in moving:
        first.give_up(item)
    got = take(second, 2)
    assert {item.item for item in got} == {item.item for item in moving}
    assert min(item.generation for item in got) > items[0].generation
    stays = [item for item in items if item not in moving]
    assert all(item.is_valid() for item in stays)
    assert not wanted(stays)
    second.leave()
    back = take(first, 2)
    assert {item.item for item in back} == {item.item for item in moving}
    assert min(item.generation for item in back) > max(item.generation for item in got)


class CountedItem(Item):
    """An item that counts how often it was looked for."""

    looks = 0

    @override
    def __hash__(self) -> int:
        CountedItem.looks += 1
        return super().__hash__()

    @override
    def __lt__(self, other: object) -> bool:
        CountedItem.looks += 1
        return self[1] < cast("CountedItem", other)[1]


class StubMember:
    """What an item reads of its member."""

    history = member_id = "m"
    session_timeout_seconds = 1.0
    deadline = 0.0
    failure = None
    work = WorkList(
        group="g",
        items=FixedItems([str(place) for place in range(MANY)]),
        client="n",
        instance=None,
        grace_seconds=0.1,
    )

    def is_valid(self) -> bool:
        return True


def test_many_items_cost_the_runner_no_more_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes and gives up items on the thread that keeps its guards informed."""
    monkeypatch.setattr(CountedItem, "looks", 0)
    items = [CountedItem("t", place) for place in range(MANY)]
    handover = _ItemHandover()
    member = cast("ListMember", StubMember())
    handover.on_assigned(items)
    taken = [one for _ in items if (one := handover.take(member, 0.0))]
    assert [one.item for one in taken] == items
    assert CountedItem.looks < MANY * 50
    revoking = threading.Thread(target=handover.on_revoked, args=(items,))
    revoking.start()
    eventually(lambda: all(one.wanted_back.is_set() for one in taken))
    CountedItem.looks = 0
    for one in taken:
        handover.give_up(one)
        os.sched_yield()  # so that the other thread runs if it was notified
    revoking.join(PATIENCE * time_scale())
    assert not revoking.is_alive()
    assert handover.is_idle()
    assert CountedItem.looks < MANY * 20


def test_an_item_that_was_not_taken_yet_moves_at_once(join: Join) -> None:
    first, second = join(), join()
    eventually(lambda: first.wait(0.0) is not None)
    eventually(lambda: first.ready() == 3)

    def moved() -> bool:
        second.wait(0.0)
        return first.ready() < 3

    eventually(moved)
    assert first.ready() >= 1


def test_a_lost_item_that_comes_again_is_handed_out_after_it_was_given_up(
    join: Join, tmp_path: Path
) -> None:
    one = join()
    items = take(one, 4)
    with closing(sqlite3.connect(tmp_path / "kip30.db", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        eventually(lambda: all(item.lost.is_set() or not item.is_valid() for item in items))
        eventually(lambda: one.wait(0.0) is None and one.ready() == 0)
    one.give_up(items[1])
    again = eventually(lambda: one.wait(0.0))
    assert again.item.partition == 1
    until = time.monotonic() + TIMEOUT * time_scale() / 2
    while time.monotonic() < until:
        assert one.wait(0.01) is None
    for item in (items[0], items[2], items[3]):
        one.give_up(item)
    assert [item.item.partition for item in take(one, 3)] == [0, 2, 3]


def test_a_replaced_instance_fails_once_all_items_are_given_up(join: Join) -> None:
    old, new = join("i"), join("i")
    items = take(old, 4)

    def has_failed() -> bool:
        new.wait(0.0)
        assert old.wait(0.0) is None
        return all(item.lost.is_set() for item in items)

    eventually(has_failed)
    for item in items:
        old.give_up(item)
    with pytest.raises(FencedInstanceError):
        eventually(lambda: old.wait(0.0))
