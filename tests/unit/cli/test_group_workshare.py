import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kip30.config import load
from kip30.runner.group_items import GroupItem, GroupItems
from kip30.runner.group_member import GroupHandle, GroupShare, WorkList
from kip30.runner.group_workshare import GroupWorkshare
from kip30.runner.item_lists import FixedItems
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, eventually

Handle = GroupHandle[GroupShare] | GroupHandle[GroupItem]


@pytest.fixture(params=[GroupWorkshare, GroupItems])
def opened(shell: Shell, request: pytest.FixtureRequest) -> Iterator[list[Handle]]:
    """Two members of one group, in this process."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(request.param(load(shell.properties), work(name)))
            for name in ("n1", "n2")
        ]


def work(name: str) -> WorkList:
    return WorkList(
        group="g", items=FixedItems(["a", "b"]), client=name, instance=None, grace_seconds=1.0
    )


def gained(handle: Handle) -> GroupShare:
    until = time.monotonic() + PATIENCE_SECONDS * time_scale()
    while (share := handle.wait(0.1)) is None:
        assert time.monotonic() < until
    return share


def test_the_runner_is_notified_when_what_it_has_is_wanted_back(opened: list[Handle]) -> None:
    first, second = opened
    held: list[GroupShare] = []
    notices: list[list[bool]] = []
    first.call_on_end(lambda: notices.append([one.wanted_back.is_set() for one in held]))
    while sum(len(share.items) for share in held) < 2:
        held.append(gained(first))
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
