"""Many processes at one partition: each gets its turn, and the result of its request."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kip30.config import Written
from kip30_conformance.clients.peer import Peer
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import SIZES, Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.clients import Open

PROCESSES = 20
WITHIN_SECONDS = 10.0
PATIENT: dict[str, Written] = {
    "plugin.operation.timeout.ms": round(5000 * time_scale()),
    "plugin.session.timeout.ms": round(10_000 * time_scale()),
}
"""The default timeouts, on a machine of the usual speed."""

pytestmark = [pytest.mark.large, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=SIZES, ids=lambda nodes: f"nodes={nodes}")
def ensemble(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ensemble]:
    nodes: int = request.param
    with needed("cassandra", nodes, folder=tmp_path_factory.mktemp("cassandra")) as servers:
        yield servers


@pytest.fixture
def peers(ensemble: Ensemble, namespace: str, open_client: Open) -> Iterator[list[Peer]]:
    open_client()  # makes the tables
    properties = {**PATIENT, **ensemble.settings(), "plugin.namespace": namespace}
    with ExitStack() as ends:
        started = [Peer(properties) for _ in range(PROCESSES)]
        for one in started:
            ends.callback(one.end)
        yield started


def test_twenty_join_and_twenty_campaign_at_once(peers: list[Peer], open_client: Open) -> None:
    started = time.monotonic()
    for number, one in enumerate(peers):
        one.send("join", group="g", member_id=f"m{number}", data="")
        one.send("nominate", service="s", candidate=f"c{number}")
    joined = [one.receive() for one in peers]
    leads = [one.receive() for one in peers]
    took = time.monotonic() - started
    assert len(joined) == PROCESSES
    assert leads.count(True) == 1
    assert took < WITHIN_SECONDS * time_scale()
    client = open_client()
    assert client.group_membership("g").membership_list() == {f"m{n}" for n in range(PROCESSES)}
    leader = client.leader_election("s").get_leader()
    assert leader is not None
    assert leader.id == f"c{leads.index(True)}"


def test_twenty_write_one_key_at_once(peers: list[Peer], open_client: Open) -> None:
    storage = open_client().storage()
    storage.put("k", "0")
    for one in peers:
        one.send("increment", key="k", times=5)
    for one in peers:
        one.receive()
    assert storage.fetch("k").result() == str(5 * PROCESSES)
