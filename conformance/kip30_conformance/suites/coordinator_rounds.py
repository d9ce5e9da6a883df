"""Groups that divide work: rounds, generations, and the notifications of members."""

import itertools
import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from kip30 import BYTES, GroupError, PluginLocator, UnsupportedError
from kip30.coordinator import Generation, GuardedStorage, MemberState
from kip30.driver import Capability
from kip30_conformance.clients.item_coordinator import (
    ItemCoordinator,
    are_shared,
    await_call,
    await_generation,
    await_shared,
)
from kip30_conformance.clients.members import MemberFactory, poll_until_called, poll_until_shared
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, Suite

_PACKED = 4000
"""A number of items whose assignments do not fit into the state."""
_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(900))


class CoordinatorSuite(Suite):
    """Base of the suites of coordinators."""

    @pytest.fixture
    def members(self, client: PluginLocator) -> Iterator[MemberFactory]:
        """Yield a factory of members; they are closed at the end."""
        if Capability.COMPARE_AND_SET not in client.backend.capabilities:
            with pytest.raises(UnsupportedError):
                ItemCoordinator(client)
            pytest.skip("the store does not offer compare-and-set")
        with ExitStack() as ends:
            yield MemberFactory(ends)

    @pytest.fixture
    def listing(self, client: PluginLocator) -> None:
        """Skip the check on a store that cannot list keys: it reads the stored records."""
        if Capability.LISTING not in client.backend.capabilities:
            pytest.skip("the store does not offer listing")


@pytest.mark.coordinator
class CoordinatorRoundTests(CoordinatorSuite):
    """Generations strictly grow, each has one assignment, and members are asked in order."""

    def test_K01_generation_rises(self, client: PluginLocator, members: MemberFactory) -> None:
        """Generations strictly grow, through an empty group and changes of leader, too."""
        generations: list[int] = []
        for _ in range(3):
            first, second = members.started(client), members.started(client)
            await_shared(first, second)
            second.close()
            await_shared(first)
            first.close()
            generations += first.generations()
            assert second.generations() == sorted(set(second.generations()))
        assert generations == sorted(set(generations))
        assert generations[0] == 1

    def test_K04_one_assigner(self, client: PluginLocator, members: MemberFactory) -> None:
        """Only the leader performs the assignment, and the calls of each member alternate."""
        three = [members.started(client) for _ in range(3)]
        await_shared(*three)
        leaders = [one for one in three if one.is_leader]
        assert len(leaders) == 1
        assert [one for one in three if "perform_assignment" in one.names()] == leaders
        for one in three:
            calls = [name for name in one.names() if name != "perform_assignment"]
            assert calls == ["on_join_prepare", "on_join_complete"] * (len(calls) // 2)
            number = one.generations()[-1]
            assert one.generation == Generation(number, one.member_id, "even")
            assert one.state is MemberState.STABLE
            assert one.is_valid()
            assert not one.lost.is_set()

    def test_K10_protocol_type_fixed(self, client: PluginLocator, members: MemberFactory) -> None:
        """A member of another protocol type is refused, and the group is not disturbed."""
        first = members.started(client)
        await_shared(first)
        other = members.polled(client, kind="others")
        with pytest.raises(GroupError, match="protocol type"):
            other.ensure_active_group(30)
        assert other.names() == []
        assert first.generations() == [1]
        assert first.works_on() == frozenset(range(6))

    def test_K18_leader_rejoin_rebalances(
        self, client: PluginLocator, members: MemberFactory
    ) -> None:
        """The leader may ask for a round at any time; others only with other metadata (K19)."""
        first, second = members.started(client), members.started(client)
        await_shared(first, second)
        leader, other = (first, second) if first.is_leader else (second, first)
        number = leader.generation.generation
        other.request_rejoin("nothing has changed")
        leader.request_rejoin("the items may have changed")
        await_generation(leader, number + 1)
        await_shared(first, second)
        assert other.generations()[-1] == number + 1

    def test_K44_second_round_follows(self, client: PluginLocator, members: MemberFactory) -> None:
        """Items that a live owner must give up are withheld in one round, and move in the next."""
        first = members.started(client, cooperative=True)
        await_shared(first)
        second = members.started(client, cooperative=True)
        await_shared(first, second)
        shares = [call.items for call in second.calls if call.name == "on_join_complete"]
        assert shares[0] == frozenset()
        assert len(shares[-1]) == 3
        kept = [call.items for call in first.calls if call.name == "on_join_complete"]
        assert all(old >= new for old, new in itertools.pairwise(kept))

    def test_K47_converges(self, client: PluginLocator, members: MemberFactory) -> None:
        """After a change a cooperative group comes to rest within four rounds."""
        present = [members.started(client, cooperative=True, count=24)]
        await_shared(*present)
        for _ in range(3):
            before = present[0].generation.generation
            present.append(members.started(client, cooperative=True, count=24))
            await_shared(*present)
            assert present[0].generation.generation <= before + 4

    def test_K56_join_after_snapshot(self, open_client: OpenClient, members: MemberFactory) -> None:
        """A member that comes while the work is assigned gets its share in the next round."""
        first = members.started(open_client())
        await_shared(first)
        with held_call(first, "perform_assignment") as begun:
            second = members.started(open_client())
            assert begun.wait(30)
            third = members.started(open_client())
            await_call(third, "on_join_prepare")
        await_shared(first, second, third)
        assert second.generations()[0] < third.generations()[0]

    @pytest.mark.usefixtures("listing")
    def test_K57_collected_assignment(
        self, open_client: OpenClient, members: MemberFactory
    ) -> None:
        """A member whose part is gone before it has read it counts as left out, and rejoins."""
        client = open_client()
        first = members.started(client, count=_PACKED)
        second = members.polled(open_client(), count=_PACKED)
        poll_until_called(second, "on_join_prepare", 1)
        second.poll(0.1)
        await_generation(first, 1)
        parts = client.storage(BYTES)
        for key in [*parts.list("kip30.assignment/g")]:
            parts.delete(key)
        poll_until_shared(second, first)
        assert second.generations()[0] == first.generations()[-1]

    def test_K63_committed_first(self, open_client: OpenClient, members: MemberFactory) -> None:
        """A member takes the last generation up before it joins the next round."""
        first = members.started(open_client())
        second = members.polled(open_client())
        await_shared(first)
        poll_until_called(second, "on_join_prepare", 1)
        second.poll(0.1)
        number = eventually(lambda: first.generations()[1:], within=30, what="a round")[0]
        first.request_rejoin("another round")
        await_call(first, "on_join_prepare", 3)
        poll_until_called(second, "on_join_prepare", 2)
        calls = [(call.name, call.generation) for call in second.calls]
        assert calls[1:3] == [("on_join_complete", number), ("on_join_prepare", number)]
        poll_until_shared(second, first)

    @pytest.mark.usefixtures("listing")
    @pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=_HEAVY)])
    def test_K71_clean(self, client: PluginLocator, members: MemberFactory, rounds: int) -> None:
        """After many rounds the parts of at most two remain, and closing leaves nothing."""
        threads = {*threading.enumerate()}
        first, second = (members.started(client, count=_PACKED) for _ in range(2))
        await_shared(first, second)
        for number in range(first.generation.generation, rounds):
            for one in (first, second):
                if one.is_leader:
                    one.request_rejoin("another round")
            await_generation(first, number + 1)
        await_shared(first, second)
        assert first.generation.generation in _stored_rounds(client)
        eventually(lambda: len(_stored_rounds(client)) <= 2, within=30, what="old parts are gone")
        first.close()
        second.close()
        assert client.group_membership("kip30.group/g").membership_list() == frozenset()
        assert client.leader_election("kip30.group/g").get_leader() is None
        left = {one.name for one in {*threading.enumerate()} - threads if "group" in one.name}
        assert left == set()

    def test_K72_groups_independent(self, client: PluginLocator, members: MemberFactory) -> None:
        """Groups of one client do not disturb each other, even if one name begins with another."""
        alone = members.started(client, "g")
        other = members.started(client, "g/d.x")
        await_shared(alone)
        await_shared(other)
        third = members.started(client, "g/d.x")
        await_shared(other, third)
        alone.storage().put("x", "of g")
        assert other.storage().get("x") is None
        assert alone.generations() == [1]
        assert are_shared([alone])

    def test_K64_inline_and_packed(self, client: PluginLocator, members: MemberFactory) -> None:
        """Shares arrive whole, whether they fit into the state or into parts, or need their own."""
        for group, count in (("small", 6), ("parts", _PACKED), ("alone", 20_000)):
            first, second = (members.started(client, group, count=count) for _ in range(2))
            await_shared(first, second)
            state = client.storage(BYTES).get(f"kip30.group/{group}/state")
            assert state is not None
            head: dict[str, Any] = json.loads(state.value.partition(b"\n")[0])
            assert (head["parts"] > 0) == (count > 6)
            first.close()
            second.close()


def _stored_rounds(client: PluginLocator) -> set[int]:
    names = client.storage().list("kip30.assignment/g")
    return {int(name.rpartition("/")[2].split(".")[0]) for name in names}


def guarded_storage(member: ItemCoordinator) -> GuardedStorage[str] | None:
    """Return the guarded storage of *member*; None after the check that there must be none."""
    try:
        return member.storage()
    except UnsupportedError:
        return None


@contextmanager
def held_call(one: ItemCoordinator, name: str) -> Generator[threading.Event]:
    """Block the next call of *name* until the end of the block; yields an event of its start."""
    begun, may_end = threading.Event(), threading.Event()
    before: Callable[[str], object] = one.before

    def hold(called: str) -> None:
        if called == name:
            begun.set()
            may_end.wait(60)

    one.before = hold
    try:
        yield begun
    finally:
        one.before = before
        may_end.set()
