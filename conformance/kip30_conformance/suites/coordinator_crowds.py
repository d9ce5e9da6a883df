"""Groups of many members: the costs that must not grow with their number."""

from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.coordinator import describe_group
from kip30.runtime.candidate_line import line_group
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.clients.peer import Peer
from kip30_conformance.driver_faults import wrap
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer
from kip30_conformance.suites.coordinator_rounds import CoordinatorSuite

_SERVICE = "kip30.group/g"
_CLIENTS = 33
_MEMBERS = 100
_MOST_CLAIMS = 6
_PROCESSES = 10
_WITHIN = 120.0
_POLLED = 0.1
"""A store whose watches are later than this, in seconds, has groups of up to 100 members."""
_PATIENT: dict[str, Any] = {"rebalance_timeout_seconds": 600.0, "initial_delay_seconds": 5.0}


@pytest.mark.coordinator
@pytest.mark.heavy
class CoordinatorCrowdTests(CoordinatorSuite):
    """A hundred members, and a thousand."""

    @pytest.mark.timeout(900)
    def test_K70_few_candidates(
        self, open_client: OpenClient, peer: OpenPeer, members: MemberFactory, harness: Harness
    ) -> None:
        """Of 100 members few stand for election, so few claim when the leader is killed."""
        watcher, victim = open_client(), peer()
        victim.call("start_crowd", group="g", number=1, count=1000, config=_PATIENT)
        eventually(lambda: _items([victim], 1000), within=_WITHIN, what="the first has a share")
        claimed = set[int]()
        clients = [open_client(**harness.steady) for _ in range(_CLIENTS)]
        crowd = [
            members.started(clients[number % _CLIENTS], count=1000, config=_PATIENT)
            for number in range(_MEMBERS - 1)
        ]
        eventually(
            lambda: {len(one.works_on()) for one in crowd} == {1000 // _MEMBERS},
            within=_WITHIN,
            what="each has its share",
        )
        assert victim.call("crowd")["lead"] == 1
        line = watcher.group_membership(line_group(_SERVICE))
        eventually(
            lambda: len(line.membership_list()) <= _MOST_CLAIMS,
            within=_WITHIN,
            what="few wait to be elected",
        )
        for number, client in enumerate(clients):
            wrap(client.backend.election, "claim", partial(_noted, claimed, number))
        victim.kill()
        eventually(
            lambda: sum(len(one.works_on()) for one in crowd) == 1000,
            within=_WITHIN,
            what="the others share all items",
        )
        assert any(one.is_leader for one in crowd)
        assert 1 <= len(claimed) <= _MOST_CLAIMS

    @pytest.mark.timeout(1800)
    def test_K74_thousand_members(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness
    ) -> None:
        """A thousand members share ten thousand items, also when a tenth of them are killed."""
        each = 100 if client.backend.limits.observe_seconds < _POLLED else 10
        peers = [peer(**harness.steady) for _ in range(_PROCESSES)]
        count = 10 * each * _PROCESSES
        for one in peers:
            one.send("start_crowd", group="g", number=each, count=count, config=_PATIENT)
        for one in peers:
            one.receive()
        eventually(lambda: _items(peers, count), within=5 * _WITHIN, what="all items are shared")
        assert {size for one in peers for size in one.call("crowd")["sizes"]} == {10}
        victim = next(one for one in peers if one.call("crowd")["lead"])
        left = [one for one in peers if one is not victim]
        victim.kill()
        eventually(lambda: _items(left, count), within=5 * _WITHIN, what="the others have it all")
        for one in left:
            for generations in one.call("crowd")["generations"]:
                assert generations == sorted(set(generations))
        found = describe_group(client, "g")
        assert found is not None
        assert sum(one.is_present for one in found.members.values()) == each * len(left)


def _items(peers: list[Peer], count: int) -> bool:
    """Return whether the members of *peers* have all items, each of them once."""
    for one in peers:
        one.send("crowd")
    crowds = [one.receive() for one in peers]
    return sorted(item for crowd in crowds for item in crowd["items"]) == [*range(count)]


def _noted(claimed: set[int], number: int, real: Any, service: str, *arguments: Any) -> Future[Any]:
    """Claim, and note the client that did."""
    if service == _SERVICE:
        claimed.add(number)
    answer: Future[Any] = real(service, *arguments)
    return answer
