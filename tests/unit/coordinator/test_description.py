"""The description of a group, for clients that take no part in it."""

import json

import pytest

from kip30 import PluginLocator
from kip30.coordinator import describe_group
from kip30.coordinator.keys import GroupKeys
from kip30_conformance.clients.item_coordinator import await_shared
from kip30_conformance.clients.members import MemberFactory, poll_until_shared


@pytest.mark.parametrize("count", [6, 4000])
def test_a_group_is_described(client: PluginLocator, members: MemberFactory, count: int) -> None:
    assert describe_group(client, "g") is None
    first = members.started(client, count=count)
    static = {"group_instance_id": "k", "eligible": False}
    second = members.started(client, count=count, config=static)
    await_shared(first, second)
    found = describe_group(client, "g")
    assert found is not None
    assert (found.group_id, found.is_rebalancing) == ("g", False)
    assert found.generation == first.generation.generation
    assert (found.protocol_type, found.protocol) == ("items", "even")
    assert (found.leader, found.epoch) == (first.member_id, 1)
    assert {name: frozenset(json.loads(one.share)) for name, one in found.members.items()} == {
        one.member_id: one.held for one in (first, second)
    }
    assert found.members[first.member_id].group_instance_id is None
    assert found.members[second.member_id].group_instance_id == "k"
    second.close()
    found = describe_group(client, "g")
    assert found is not None
    waiting = found.members[second.member_id]
    assert (waiting.is_present, waiting.has_share) == (False, True)
    again = members.started(client, count=count, config=static)
    await_shared(first, again)
    found = describe_group(client, "g")
    assert found is not None
    assert found.members.keys() == {first.member_id, again.member_id}
    assert found.members[again.member_id].since == waiting.since
    assert frozenset(json.loads(found.members[again.member_id].share)) == again.held
    first.close()


def test_a_member_whose_record_cannot_be_read_is_present(
    client: PluginLocator, members: MemberFactory
) -> None:
    one = members.polled(client)
    poll_until_shared(one)
    group = client.group_membership(GroupKeys("g").group)
    group.join("other", "no record of a member")
    found = describe_group(client, "g")
    assert found is not None
    other = found.members["other"]
    assert (other.is_present, other.is_readable, other.has_share) == (True, False, False)
    own = found.members[one.member_id]
    assert (own.is_present, own.is_readable) == (True, True)
