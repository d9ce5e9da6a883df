import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from kip30.config import load
from kip30.driver.clock import SystemClock
from kip30.errors import FencedInstanceError
from kip30.runner.group_items import GroupItem, GroupItems
from kip30.runner.group_member import GroupHandle, GroupShare, WorkList
from kip30.runner.group_workshare import GroupWorkshare
from kip30.runner.item_lists import FixedItems
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, eventually

Handle = GroupHandle[GroupShare] | GroupHandle[GroupItem]


@pytest.fixture(params=[GroupWorkshare, GroupItems])
def kind(request: pytest.FixtureRequest) -> type[Handle]:
    found: type[Handle] = request.param
    return found


@pytest.fixture
def opened(shell: Shell, kind: type[Handle]) -> Iterator[list[Handle]]:
    """Two members of one group, in this process."""
    with opened_twice(shell, kind) as handles:
        yield handles


@contextmanager
def opened_twice(
    shell: Shell, kind: type[Handle], instance: str | None = None
) -> Generator[list[Handle]]:
    properties = load(shell.properties)
    with (
        kind(properties, work("n1", instance)) as one,
        kind(properties, work("n2", instance)) as two,
    ):
        yield [one, two]


def work(name: str, instance: str | None) -> WorkList:
    return WorkList(
        group="g", items=FixedItems(["a", "b"]), client=name, instance=instance, grace_seconds=1.0
    )


def gained(handle: Handle) -> GroupShare:
    until = time.monotonic() + PATIENCE_SECONDS * time_scale()
    while (share := handle.wait(0.1)) is None:
        assert time.monotonic() < until
    return share


def gained_all(handle: Handle) -> list[GroupShare]:
    held: list[GroupShare] = []
    while sum(len(share.items) for share in held) < 2:
        held.append(gained(handle))
    return held


def test_the_runner_is_notified_when_what_it_has_is_wanted_back(opened: list[Handle]) -> None:
    first, second = opened
    held: list[GroupShare] = []
    notices: list[list[bool]] = []
    first.call_on_end(lambda: notices.append([one.wanted_back.is_set() for one in held]))
    held += gained_all(first)
    assert notices == []
    second.wait(0.0)  # joins
    eventually(lambda: len(notices) == 1)
    (wanted,) = notices
    assert any(wanted)
    for share in held:
        if share.wanted_back.is_set():
            first.give_up(share)
    assert gained(second).items
    assert notices == [wanted]


def test_a_replaced_instance_gives_nothing_away_before_the_runner_does(
    shell: Shell, kind: type[Handle]
) -> None:
    """Its commands are killed then, and may take a while to end."""
    clock = SystemClock()
    with opened_twice(shell, kind, "i") as (old, new):
        held = gained_all(old)
        until = 0.0

        def is_lost() -> bool:
            nonlocal until
            until = max(until, *(share.deadline for share in held))
            assert new.wait(0.0) is None
            return all(share.lost.is_set() for share in held)

        eventually(is_lost)
        while clock.now() < until:
            assert new.wait(0.01) is None or clock.now() >= until
        for share in held:
            old.give_up(share)
        with pytest.raises(FencedInstanceError):
            gained(old)
        assert gained(new).items


def test_a_replaced_instance_goes_on_as_soon_as_the_runner_has_given_all_up(
    shell: Shell, kind: type[Handle]
) -> None:
    shell.configure(plugin_session_timeout_ms=600_000)
    with opened_twice(shell, kind, "i") as (old, new):
        held = gained_all(old)
        new.wait(0.0)  # takes the instance

        def is_lost() -> bool:
            return all(share.lost.is_set() for share in held)

        eventually(is_lost)
        for share in held:
            assert share.known_deadline > SystemClock().now()
            old.give_up(share)
        assert gained(new).items
