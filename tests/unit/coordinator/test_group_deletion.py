"""Deleting a group while a member joins, and after a deletion that was cut short."""

from collections.abc import Iterable

import pytest

from kip30 import GroupNotEmptyError, PluginLocator
from kip30.coordinator import delete_group, describe_group
from kip30.coordinator.keys import GroupKeys
from kip30_conformance.clients.item_coordinator import ItemCoordinator, await_shared
from kip30_conformance.clients.members import MemberFactory

from .conftest import OpenClient


def _leave_records(client: PluginLocator, members: MemberFactory) -> None:
    with members.started(client, config={"group_instance_id": "k"}) as one:
        await_shared(one)
        one.storage().set("position", "1")


@pytest.mark.parametrize("with_data", [False, True])
def test_a_member_that_joins_after_the_look_keeps_its_group(
    client: PluginLocator,
    open_client: OpenClient,
    members: MemberFactory,
    monkeypatch: pytest.MonkeyPatch,
    with_data: bool,  # noqa: FBT001  a parameter
) -> None:
    _leave_records(client, members)
    other, own_records = open_client(), GroupKeys.own_records
    joined: list[ItemCoordinator] = []

    def join_first(keys: GroupKeys, found: Iterable[str], *, with_data: bool) -> list[str]:
        """Join once the group was seen to have no members."""
        joined.append(members.started(other))
        await_shared(*joined)
        return [*own_records(keys, found, with_data=with_data)]

    monkeypatch.setattr(GroupKeys, "own_records", join_first)
    with pytest.raises(GroupNotEmptyError, match="just joined"):
        delete_group(client, "g", with_data=with_data)
    found = describe_group(client, "g")
    assert found is not None
    assert found.generation > 1
    assert joined[0].member_id in found.members
    assert client.storage().get("kip30.group/g/d.position")
    joined[0].storage().set("position", "2")


def test_a_deletion_that_was_cut_short_is_finished_by_the_next(
    client: PluginLocator, members: MemberFactory
) -> None:
    _leave_records(client, members)
    keys, storage = GroupKeys("g"), client.storage()
    storage.delete(keys.state)
    assert delete_group(client, "g", with_data=True)
    assert [*storage.list(keys.group)] == []
