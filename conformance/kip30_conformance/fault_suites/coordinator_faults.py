"""Groups that divide work while members are killed, stopped and cut off."""

import random
import time
from contextlib import ExitStack
from typing import Any

import pytest

from kip30 import IllegalGenerationError, PluginLocator
from kip30_conformance.client_faults import WatchHold
from kip30_conformance.clients.coordinator_verbs import CoordinatorVerbs
from kip30_conformance.clients.item_coordinator import await_call, await_shared
from kip30_conformance.clients.item_work import overlaps
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.clients.peer import Peer, PeerError
from kip30_conformance.driver_faults import DriverFault, Effect, wrap
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer, supported
from kip30_conformance.suites.coordinator_rounds import CoordinatorSuite

_COUNT = 6
_DEATHS = 4
_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(1800))
_REFUSALS = {"FencedInstanceError", "IllegalGenerationError", "UnsupportedError"}


@pytest.mark.fault
class CoordinatorFaultTests(CoordinatorSuite):
    """The work of a member that has ended goes to others, and never to two of them."""

    def test_K21_silent_member_removed(
        self, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """The share of a killed member moves once its session has ended, in one round."""
        survivor, victim = peer(**harness.steady), peer()
        take_part(survivor, victim)
        await_parts(survivor, victim)
        before = part(survivor)["generation"]
        worked = victim.call("worked", name="m")
        victim.kill()
        await_parts(survivor)
        after = part(survivor)
        assert after["generation"] == before + 1
        assert "on_lost" not in after["calls"]
        assert overlaps({"survivor": survivor.call("worked", name="m"), "victim": worked}) == []
        evidence.saw("killed member", victim.pid)

    def test_K53_killed_in_a_round(
        self, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """Members that are killed at any moment of a round, leaders too, do not stop the group."""
        survivor = peer(**harness.steady)
        take_part(survivor)
        await_parts(survivor)
        worked = dict[str, list[list[float]]]()
        chance = random.Random(53)  # noqa: S311  no secret
        for number in range(_DEATHS):
            victim = peer()
            take_part(victim)
            await_parts(survivor, victim)
            leader = victim if part(victim)["leads"] else survivor
            leader.call("request_rejoin", name="m")
            time.sleep(chance.uniform(0, 0.05))  # so that it dies at any moment of the round
            worked[f"victim {number}"] = victim.call("worked", name="m")
            victim.kill()
            evidence.saw("killed member", victim.pid)
            await_parts(survivor)
        worked["survivor"] = survivor.call("worked", name="m")
        assert overlaps(worked) == []

    @pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=_HEAVY)])
    def test_K65_stopped_member(
        self, peer: OpenPeer, harness: Harness, evidence: Evidence, rounds: int
    ) -> None:
        """The share of a stopped member is invalid before another one gets it, and stays so."""
        survivor, victim = peer(**harness.steady), peer()
        take_part(survivor, victim)
        await_parts(survivor, victim)
        for _ in range(rounds):
            victim.stop()
            await_parts(survivor)
            victim.resume()
            evidence.saw("stopped member", victim.pid)
            await_parts(survivor, victim)
        calls = part(victim)["calls"]
        assert "on_lost" in calls
        worked = {
            name: one.call("worked", name="m")
            for name, one in (("survivor", survivor), ("victim", victim))
        }
        assert overlaps(worked) == []

    def test_K52_leader_cut_off(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A leader that is cut off from the store loses its share by its own clock."""
        lonely, other = open_client(), open_client(**harness.steady)
        cut, stays = CoordinatorVerbs(lonely), CoordinatorVerbs(other)
        with ExitStack() as ends:
            for verbs in (cut, stays):
                verbs.take_part("m", "g")
                ends.callback(verbs.end_part, "m")
                eventually(lambda: verbs.part("m")["items"], within=30, what="a share")  # noqa: B023
            _await_verbs(cut, stays)
            faults = harness.faults(lonely)
            with supported(faults.cut_off):
                _await_verbs(stays)
                assert cut.part("m")["items"] == []
            evidence.saw("cut off", faults.counted())
            _await_verbs(cut, stays)
            assert overlaps({"cut": cut.worked("m"), "stays": stays.worked("m")}) == []

    def test_K61_store_unreachable(
        self, open_client: OpenClient, members: MemberFactory, harness: Harness, evidence: Evidence
    ) -> None:
        """Members none of which reaches the store lose their shares by their own clocks."""
        clients = [open_client(), open_client()]
        both = [members.started(client) for client in clients]
        await_shared(*both)
        shares = [one.lost for one in both]
        faults = [harness.faults(client) for client in clients]
        with ExitStack() as cuts:
            for fault in faults:
                cuts.enter_context(supported(fault.cut_off))
            for lost in shares:
                eventually(lost.is_set, within=30, what="a share is over")
            assert [one.works_on() for one in both] == [frozenset(), frozenset()]
            for one in both:
                await_call(one, "on_lost")
                with pytest.raises(IllegalGenerationError):
                    one.check()
            evidence.saw("cut off", all(fault.counted() for fault in faults))
        await_shared(*both)
        for one in both:
            assert one.failure is None
            assert one.generations() == sorted(set(one.generations()))

    def test_K36_lost_not_revoked(
        self, open_client: OpenClient, members: MemberFactory, harness: Harness, evidence: Evidence
    ) -> None:
        """After a member's session has ended its on_lost is called, and it rejoins (K67)."""
        client = open_client()
        stays = members.started(open_client(**harness.steady))
        one = members.started(client)
        await_shared(one, stays)
        lost = one.lost
        faults = harness.faults(client)
        supported(faults.expire_session)
        evidence.saw("expired session", faults.counted())
        eventually(lost.is_set, within=30, what="it has noticed")
        await_call(one, "on_lost")
        await_shared(one, stays)
        at = one.names().index("on_lost")
        assert one.calls[at + 1].name == "on_join_prepare"
        assert one.calls[at + 1].generation == -1

    def test_K39_old_holder_stopped(
        self, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A stopped process whose instance another one has taken has ended when it resumes."""
        survivor, old = peer(**harness.steady), peer()
        static = {"group_instance_id": "k", "eligible": False}
        take_part(survivor)
        take_part(old, config=static)
        await_parts(survivor, old)
        share = part(old)["items"]
        old.stop()
        evidence.saw("stopped holder", old.pid)
        again = peer(**harness.steady)
        take_part(again, config=static)
        await_parts(survivor, again)
        assert part(again)["items"] == share
        old.resume()
        with pytest.raises(PeerError) as refused:
            old.call("put_guarded", name="m", key="k", value="late")
        assert refused.value.kind in _REFUSALS
        eventually(
            lambda: part(old)["failure"] == "FencedInstanceError", within=30, what="the old ends"
        )
        assert part(old)["calls"][-1] == "on_lost"

    def test_K41_static_member_killed(
        self, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """The share of a killed static member is kept for it through rounds of the others."""
        survivor, victim = peer(**harness.steady), peer()
        take_part(survivor, config={"static_grace_seconds": 600.0})
        static = {"group_instance_id": "k", "eligible": False}
        take_part(victim, config=static)
        await_parts(survivor, victim)
        victim.kill()
        evidence.saw("killed member", victim.pid)
        third = peer(**harness.steady)
        take_part(third, config={"eligible": False})
        eventually(lambda: part(third)["items"], within=60, what="the third has a share")
        eventually(
            lambda: len(part(survivor)["items"] + part(third)["items"]) == 4,
            within=60,
            what="both have a third of the items",
        )
        again = peer(**harness.steady)
        take_part(again, config=static)
        await_parts(survivor, third, again)

    def test_K50_ambiguous_writes(
        self, open_client: OpenClient, members: MemberFactory, harness: Harness, evidence: Evidence
    ) -> None:
        """A write of the state whose answer is lost is settled by the state, done or not done."""
        client = open_client()
        first = members.started(client)
        await_shared(first)
        faults = harness.faults(client)
        second = members.started(open_client(**harness.steady), config={"eligible": False})
        await_shared(first, second)
        for effect in (Effect.LOSE_ANSWER, Effect.FAIL, Effect.ARRIVE_LATE):
            number = first.generation.generation
            faults.add(DriverFault(operation="storage.write", effect=effect, times=2, seconds=0.2))
            first.request_rejoin("another round")
            eventually(
                lambda: first.generation.generation > number,  # noqa: B023
                within=30,
                what="a round",
            )
            await_shared(first, second)
        evidence.saw("lost answers", faults.counted())
        assert second.generations() == sorted(set(second.generations()))

    def test_K51_deaf_listeners(
        self, open_client: OpenClient, members: MemberFactory, evidence: Evidence
    ) -> None:
        """A group in which no listener is ever called becomes stable by reading alone."""
        clients = [open_client(), open_client()]
        holds = [_without_watches(client) for client in clients]
        with holds[0].held(), holds[1].held():
            first = members.started(clients[0])
            await_shared(first, within=60)
            second = members.started(clients[1])
            await_shared(first, second, within=60)
            evidence.saw("deaf clients", len(holds))


def _without_watches(client: PluginLocator) -> WatchHold:
    """Return a delay of everything that the watches of *client* deliver."""
    hold = WatchHold()
    wrap(client.backend.observe, "watch", hold.watch)
    return hold


def take_part(*peers: Peer, **more: Any) -> None:
    """Start a member of one group in each of *peers*."""
    for one in peers:
        one.call("take_part", name="m", group="g", **more)


def part(peer: Peer) -> dict[str, Any]:
    """Return the present state of the member of *peer*."""
    found: dict[str, Any] = peer.call("part", name="m")
    return found


def await_parts(*peers: Peer, count: int = _COUNT) -> None:
    """Wait until the members of *peers* share all items evenly."""
    eventually(
        lambda: _are_even([part(peer)["items"] for peer in peers], count),
        within=40,
        what="the peers share all items evenly",
    )


def _await_verbs(*all_verbs: CoordinatorVerbs) -> None:
    eventually(
        lambda: _are_even([verbs.part("m")["items"] for verbs in all_verbs], _COUNT),
        within=40,
        what="all items are shared evenly",
    )


def _are_even(shares: list[list[int]], count: int) -> bool:
    is_complete = sorted(item for share in shares for item in share) == list(range(count))
    return is_complete and max(map(len, shares)) - min(map(len, shares)) <= 1
