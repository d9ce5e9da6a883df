"""on_lost comes at once, however busy the core is with a store that does not answer."""

import pytest

from kip30 import Leadership, Member
from kip30.config import Written
from kip30.runtime.dispatcher import STORE_WORKERS
from kip30_conformance.clients.callback_recorder import Recorder

from .conftest import OpenClient
from .trouble import faults

pytestmark = pytest.mark.virtual_time

_EACH = 3 * STORE_WORKERS
_SILENT_SECONDS = 60


def test_on_lost_does_not_queue_behind_tasks_that_wait_for_the_store(
    open_client: OpenClient,
) -> None:
    patience: dict[str, Written] = {
        "plugin.operation.timeout.ms": 1000 * _SILENT_SECONDS,
        "plugin.session.timeout.ms": 1000 * _SILENT_SECONDS,
    }
    client = open_client(**patience)
    group, left = client.group_membership("g"), Recorder[Member]()
    deposed = Recorder[Leadership]()
    for number in range(_EACH):
        group.join(f"m{number}", "", on_lost=left)
        assert client.leader_election(f"s{number}").nominate("a", "", on_lost=deposed)
    faults(client).delay("*", _SILENT_SECONDS, times=None)
    faults(client).expire_session()
    left.expect_count(_EACH, within=_SILENT_SECONDS / 2)
    deposed.expect_count(_EACH, within=_SILENT_SECONDS / 2)


def test_on_lost_comes_before_on_rejoined(open_client: OpenClient) -> None:
    """Two tasks may find the same incarnation over; one of them reports it, and none after it."""
    client, story = open_client(), Recorder[str]()
    group = client.group_membership("g")
    group.join(
        "m",
        "",
        on_lost=lambda member: story(f"lost {member.incarnation}"),
        on_rejoined=lambda member: story(f"joined {member.incarnation}"),
    )
    for number in range(1, 20):
        first = group.member("m")
        assert first is not None
        faults(client).expire_session()
        story.expect_count(2 * number)
        second = group.member("m")
        assert second is not None
        wanted = [f"lost {first.incarnation}", f"joined {second.incarnation}"]
        assert story.events[-2:] == wanted
