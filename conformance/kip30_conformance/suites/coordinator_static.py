"""Static members: a process that returns under its instance id gets its share again."""

from typing import Any

import pytest

from kip30 import FencedInstanceError, GroupNotEmptyError
from kip30.coordinator import delete_group, describe_group
from kip30.coordinator.keys import GroupKeys
from kip30_conformance.clients.item_coordinator import await_generation, await_shared
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.harness import Harness
from kip30_conformance.neighbour.base import member
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, supported
from kip30_conformance.suites.coordinator_rounds import (
    CoordinatorSuite,
    guarded_storage,
    held_call,
)

_STATIC: dict[str, Any] = {"config": {"group_instance_id": "k"}}


@pytest.mark.coordinator
class StaticMemberTests(CoordinatorSuite):
    """The share of a static member waits for the next process of its instance (KIP-345)."""

    def test_K38_static_return_quiet(self, open_client: OpenClient, members: MemberFactory) -> None:
        """A static member that returns has its share again, and no other member is disturbed."""
        first = members.started(open_client())
        second = members.started(open_client(), **_STATIC)
        await_shared(first, second)
        calls, share = first.names(), second.works_on()
        number = second.generation.generation
        second.close()
        again = members.started(open_client(), **_STATIC)
        await_shared(first, again)
        assert again.works_on() == share
        assert again.generation.generation == number
        assert first.names() == calls
        assert again.names() == ["on_join_complete"]
        assert again.member_id != second.member_id

    def test_K40_static_close_is_silent(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """A share moves after the grace if its member was closed, at once if it has left."""
        grace = 2.0 * time_scale()
        first = members.started(open_client(), config={"static_grace_seconds": grace})
        for leaves in (False, True):
            second = members.started(open_client(), config={"group_instance_id": "k"})
            await_shared(first, second)
            clock = first.clock
            closed_at = clock.now()
            if leaves:
                second.leave("for good")
            else:
                second.close()
            await_shared(first)
            moved = [call for call in first.calls if call.name == "on_join_complete"][-1]
            assert (moved.at - closed_at >= grace) != leaves

    def test_K76_static_leader_return(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """The share of a static member that led its group waits for it, also through a round."""
        grace = {"static_grace_seconds": 300.0}
        static = {"group_instance_id": "k", **grace}
        first = members.started(open_client(), config=static)
        await_shared(first)
        second = members.started(open_client(), config=grace)
        await_shared(first, second)
        eventually(lambda: first.is_leader, within=30, what="the first one leads")
        share, kept = first.works_on(), second.works_on()
        number = second.generation.generation
        first.close()
        eventually(lambda: second.is_leader, within=60, what="the second one leads")
        second.request_rejoin("another round")
        await_generation(second, number + 1)
        eventually(lambda: second.works_on() == kept, within=30, what="it has its share again")
        again = members.started(open_client(), config=static)
        await_shared(second, again)
        assert again.works_on() == share
        assert again.names() == ["on_join_complete"]

    def test_K42_static_return_mid_round(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """A static member that returns while a round is under way takes part in a round."""
        first = members.started(open_client())
        second = members.started(open_client(), **_STATIC)
        await_shared(first, second)
        second.close()
        with held_call(first, "perform_assignment") as begun:
            third = members.started(open_client())
            assert begun.wait(60)
            again = members.started(open_client(), **_STATIC)
            eventually(lambda: again.state.value != "unjoined", within=30, what="it has come back")
        await_shared(first, third, again)

    def test_K75_deleted_group(self, open_client: OpenClient, members: MemberFactory) -> None:
        """A group without members can be deleted, one with members cannot; a new one begins at 1.

        The shares fill parts of their own, one of them waits for a static member, and the group's
        data stays until it is deleted, too.
        """
        client, count = open_client(), 4000
        storage, keys = client.storage(), GroupKeys("g")
        first = members.started(client, count=count)
        second = members.started(open_client(), count=count, **_STATIC)
        await_shared(first, second)
        storage.set(keys.data("position"), "kept")
        with pytest.raises(GroupNotEmptyError):
            delete_group(client, "g")
        second.close()
        with pytest.raises(GroupNotEmptyError):
            delete_group(client, "g")
        first.close()
        assert [*storage.list(keys.assignments)] != []
        assert delete_group(client, "g")
        assert describe_group(client, "g") is None
        assert [*storage.list(keys.assignments)] == []
        assert [*storage.list(keys.group)] == [keys.data("position")]
        assert delete_group(client, "g", with_data=True)
        assert [*storage.list(keys.group)] == []
        assert not delete_group(client, "g", with_data=True)
        third = members.started(client, count=count, **_STATIC)
        await_shared(third)
        assert third.generation.generation == 1

    def test_K75_unreadable_member(
        self, open_client: OpenClient, harness: Harness, root: str
    ) -> None:
        """A group with a member that cannot be read is not deleted."""
        client, keys = open_client(), GroupKeys("g")
        client.storage().put(keys.instance("k"), "m")
        with supported(harness.neighbour, root) as neighbour:
            spot = member(keys.group, "m")
            neighbour.write(spot, neighbour.unreadable_form(neighbour.sound(spot, b"")))
            with pytest.raises(GroupNotEmptyError, match="'m'"):
                delete_group(client, "g")
            assert client.storage().get(keys.instance("k"))
            neighbour.remove(spot)
        group = client.group_membership(keys.group)
        eventually(lambda: not group.membership().unreadable, what="nothing is left of it")
        assert delete_group(client, "g")

    def test_K39_replaced_instance_is_over(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """A process whose instance another one has taken is fenced: it ends; its writes fail."""
        first = members.started(open_client(), **_STATIC)
        await_shared(first)
        storage = guarded_storage(first)
        again = members.started(open_client(), **_STATIC)
        eventually(lambda: first.failure is not None, within=30, what="the first has ended")
        assert isinstance(first.failure, FencedInstanceError)
        assert first.names()[-1] == "on_lost"
        with pytest.raises(FencedInstanceError):
            first.check()
        if storage is not None:
            with pytest.raises(FencedInstanceError):
                storage.set("k", "late")
            with pytest.raises(FencedInstanceError):
                first.storage()
        await_shared(again)

    def test_K66_predecessor_waited_for(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """A member that waits for its predecessor has its share only when that one has ended."""
        first = members.started(open_client(), **_STATIC)
        await_shared(first)
        waits = {"group_instance_id": "k", "wait_for_predecessor": True}
        again = members.started(open_client(), config=waits)
        await_shared(again, within=60)
        assert isinstance(first.failure, FencedInstanceError)
        ended = [call.at for call in first.calls if call.name == "on_lost"]
        begun = [call.at for call in again.calls if call.name == "on_join_complete"]
        assert ended[0] < begun[0]
