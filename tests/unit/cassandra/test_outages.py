"""Nodes that die, freeze, or come back empty."""

import threading
import time
from collections.abc import Iterator

import pytest

from kip30 import OutcomeUnknownError, PluginLocator, UnavailableError, ValueChange
from kip30_conformance.patience import TIME_SCALE, eventually
from kip30_conformance.recorder import Recorder
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed

from .conftest import OPERATION_SECONDS, Open

RING_SECONDS = OPERATION_SECONDS * TIME_SCALE
A_MOMENT = 0.3


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with needed("cassandra", 3, folder=tmp_path_factory.mktemp("three")) as servers:
        yield servers


def _open(servers: Ensemble, **more: int) -> PluginLocator:
    timeout = {"plugin.operation.timeout.ms": round(RING_SECONDS * 1000)}
    return PluginLocator().startup({**servers.settings(), **timeout, **more})


def test_a_node_that_comes_back_empty(ensemble: Ensemble, open_client: Open) -> None:
    client, heard = open_client(), Recorder[ValueChange[str]]()
    storage = client.storage()
    storage.put("k", "old")
    client.listener_registry().add_value_change_listener("k", heard)
    election = client.leader_election("s")
    assert election.nominate("c", "")
    old = election.leadership("c")
    assert old is not None
    ensemble.nodes[0].restart(empty=True)
    eventually(lambda: heard.events and heard.events[-1].value is None, within=30)
    eventually(lambda: not old.is_valid(), what="the term of the lost data is over")
    eventually(lambda: election.leadership("c"), within=30, what="there is a new term")
    storage.put("k", "new")
    eventually(lambda: heard.events[-1].value == "new")


def test_a_frozen_node_holds_nobody_up(ensemble: Ensemble, open_client: Open) -> None:
    client = open_client()
    client.storage().put("frozen", "")
    client.group_membership("g").join("m", "")
    with ensemble.frozen():
        started = time.monotonic()
        futures = [client.storage().fetch(f"k{number}") for number in range(1000)]
        assert {type(future.exception()) for future in futures} == {UnavailableError}
        with pytest.raises((OutcomeUnknownError, UnavailableError)):
            client.storage().update("frozen", "v")
        assert time.monotonic() - started < 2.1 * OPERATION_SECONDS + A_MOMENT * TIME_SCALE
        started = time.monotonic()
        client.close()
        assert time.monotonic() - started < OPERATION_SECONDS + A_MOMENT * TIME_SCALE


def test_closed_while_frozen_leaves_no_thread(ensemble: Ensemble, open_client: Open) -> None:
    open_client().close()
    before = {thread.name for thread in threading.enumerate()}
    client = open_client()
    client.group_membership("g").join("m", "")
    with ensemble.frozen():
        client.close()
        eventually(lambda: {thread.name for thread in threading.enumerate()} <= before, within=20)


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_one_of_three_is_dead_at_startup(three: Ensemble, dead: int) -> None:
    three.nodes[dead].kill()
    try:
        with _open(three) as client:
            client.storage().put(f"dead/{dead}", "v")
            assert client.storage().fetch(f"dead/{dead}").result() == "v"
    finally:
        three.nodes[dead].restart()
        three.await_ready()


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_calls_go_on_while_one_of_three_is_frozen(three: Ensemble, frozen: int) -> None:
    with _open(three, **{"plugin.session.timeout.ms": round(2000 * RING_SECONDS)}) as client:
        storage, name = client.storage(), f"frozen/{frozen}"
        storage.put(name, "0")
        member = client.group_membership("frozen").join(name, "")
        three.nodes[frozen].stop()
        try:
            longest = 0.0
            for number in range(30):
                started = time.monotonic()
                storage.update(name, str(number))
                assert storage.fetch(name).result() == str(number)
                longest = max(longest, time.monotonic() - started)
            assert longest < 2 * RING_SECONDS
            assert member.is_valid()
        finally:
            three.nodes[frozen].resume()
            three.await_ready()
