"""Writes of members: they pass while the share is the member's, and are refused from then on."""

from typing import Any

import pytest

from kip30 import (
    BYTES,
    IllegalGenerationError,
    KeyExistsError,
    PluginLocator,
    VersionConflictError,
)
from kip30.coordinator import describe_group
from kip30.coordinator.keys import GroupKeys
from kip30.driver import Capability
from kip30_conformance.clients.item_coordinator import (
    ItemCoordinator,
    await_call,
    await_generation,
    await_shared,
)
from kip30_conformance.clients.members import (
    MemberFactory,
    poll_until_called,
    poll_until_generation,
    poll_until_shared,
)
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, supported
from kip30_conformance.suites.coordinator_rounds import (
    CoordinatorSuite,
    guarded_storage,
    held_call,
)

_FOLLOWS: dict[str, Any] = {"config": {"eligible": False}}


@pytest.mark.coordinator
class CoordinatorFencingTests(CoordinatorSuite):
    """The store refuses writes of a member whose share is another's by then."""

    def test_K31_stale_generation(self, open_client: OpenClient, members: MemberFactory) -> None:
        """A write of a former generation is refused; the member keeps its id, and continues."""
        first, second = members.started(open_client()), members.polled(open_client(), **_FOLLOWS)
        storage = guarded_storage(second)
        if storage is None:
            return
        poll_until_shared(second, first)
        storage.put("k", "mine")
        _begin_round(first, second)
        member_id, number = second.member_id, second.generation.generation
        await_generation(first, number + 1)
        with pytest.raises(IllegalGenerationError):
            storage.update("k", "late")
        kept = storage.get("k")
        assert kept is not None
        assert kept.value == "mine"
        poll_until_shared(second, first)
        storage.update("k", "mine again")
        assert second.member_id == member_id

    def test_K34_commit_window(self, open_client: OpenClient, members: MemberFactory) -> None:
        """Writes pass while the next generation is formed, and fail from its commit on."""
        first, second = members.started(open_client()), members.polled(open_client(), **_FOLLOWS)
        storage = guarded_storage(second)
        if storage is None:
            return
        poll_until_shared(second, first)
        number = first.generation.generation
        with held_call(first, "perform_assignment") as begun:
            first.request_rejoin("another round")
            eventually(
                lambda: (second.poll(0.02), begun.is_set())[1], within=30, what="all have joined"
            )
            storage.set("k", "while it is formed")
        await_generation(first, number + 1)
        with pytest.raises(IllegalGenerationError):
            storage.set("k", "late")

    def test_K68_guards_pass_while_preparing(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """Writes pass in on_join_prepare, the last moment before the work is given up."""
        first, second = members.started(open_client()), members.polled(open_client(), **_FOLLOWS)
        storage = guarded_storage(second)
        if storage is None:
            return
        written: list[str] = []

        def write(name: str) -> None:
            if name == "on_join_prepare" and second.generation.generation > 0:
                storage.set("k", "the last")
                written.append(name)

        second.before = write
        poll_until_shared(second, first)
        _begin_round(first, second)
        poll_until_shared(second, first)
        assert written

    def test_K69_since(self, open_client: OpenClient, members: MemberFactory) -> None:
        """While a share stays the same its writes pass through generations; then they do not."""
        first = members.started(open_client(), cooperative=True)
        second = members.polled(open_client(), cooperative=True, **_FOLLOWS)
        storage = guarded_storage(second)
        if storage is None:
            return
        poll_until_shared(second, first)
        lost = second.lost
        for number in range(5):
            before = second.generation.generation
            first.request_rejoin("another round")
            poll_until_generation(second, first, before + 1)
            storage.set("k", str(number))
        assert not lost.is_set()
        third = members.started(open_client(), cooperative=True)
        poll_until_shared(second, first, third)
        assert lost.is_set()
        storage.set("k", "of the new share")

    def test_K67_guarded_values(self, client: PluginLocator, members: MemberFactory) -> None:
        """Guarded data is read and written by name, and conditions of writes hold as elsewhere."""
        member = members.started(client)
        storage = guarded_storage(member)
        if storage is None:
            return
        with pytest.raises(IllegalGenerationError):
            members.polled(client).storage().put("a", "without a share")
        await_shared(member)
        version = storage.put("a/b", "1")
        with pytest.raises(KeyExistsError):
            storage.put("a/b", "2")
        version = storage.compare_and_set("a/b", version, "3")
        storage.update("a/b", "4")
        with pytest.raises(VersionConflictError):
            storage.compare_and_set("a/b", version, "5")
        if Capability.LISTING in client.backend.capabilities:
            assert [*storage.list()] == ["a/b"]
        storage.delete("a/b")
        assert storage.get("a/b") is None
        member.close()
        with pytest.raises(IllegalGenerationError):
            storage.put("a", "closed")

    def test_K35_zombie_leader_cannot_publish(
        self, open_client: OpenClient, members: MemberFactory, harness: Harness, root: str
    ) -> None:
        """An assignment of a leader is not published once another term has taken over."""
        client = open_client()
        first = members.started(open_client())
        await_shared(first)
        with held_call(first, "perform_assignment") as begun:
            second = members.started(open_client())
            assert begun.wait(30)
            epoch = _epoch(client)
            supported(harness.delete_leader, root, "kip30.group/g")
            eventually(lambda: _epoch(client) > epoch, within=30, what="the next term")
        await_shared(first, second)
        found = describe_group(client, "g")
        assert found is not None
        assert found.epoch > epoch
        for one in (first, second):
            assert one.generations() == sorted(set(one.generations()))

    def test_K32_unknown_member(
        self, open_client: OpenClient, members: MemberFactory, harness: Harness, root: str
    ) -> None:
        """A member whose record was removed has lost its share, and rejoins."""
        first, second = members.started(open_client()), members.started(open_client())
        await_shared(first, second)
        lost = second.lost
        supported(harness.delete_member, root, "kip30.group/g", second.member_id)
        eventually(lost.is_set, within=30, what="it has noticed")
        await_call(second, "on_lost")
        await_shared(first, second)
        at = second.names().index("on_lost")
        assert second.calls[at + 1].name == "on_join_prepare"
        assert second.calls[at + 1].generation == -1

    def test_K73_store_came_back_empty(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """Members of a group whose keys are gone have lost their shares, and form it again.

        A static member is no exception: no other process has its instance.
        """
        client, keys = open_client(), GroupKeys("g")
        first, second = members.started(open_client()), members.started(open_client())
        static = members.started(open_client(), config={"group_instance_id": "k"})
        await_shared(first, second, static)
        for key in (keys.state, keys.instance("k")):
            client.storage(BYTES).delete(key)
        for one in (first, second, static):
            await_call(one, "on_lost")
        await_shared(first, second, static)
        assert first.generation.generation == second.generation.generation
        assert client.storage().get(keys.instance("k")) is not None
        assert static.failure is None


def _epoch(client: PluginLocator) -> int:
    leader = client.leader_election("kip30.group/g").get_leader()
    return -1 if leader is None else leader.epoch


def _begin_round(first: ItemCoordinator, polled: ItemCoordinator) -> None:
    """Start a round that *polled* joins without learning of its end."""
    times = polled.names().count("on_join_prepare")
    first.request_rejoin("another round")
    poll_until_called(polled, "on_join_prepare", times + 1)
