"""Servers that die, freeze, or come back empty."""

import time
from collections.abc import Iterator

import pytest

from kip30 import PluginLocator, UnavailableError, ValueChange
from kip30.driver.records import Kind, Target
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, timeouts

OPERATION_SECONDS = 1.5
PATIENT_SECONDS = OPERATION_SECONDS


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("consul", 3, folder=tmp_path_factory.mktemp("three")) as servers:
        yield servers


def _open(servers: Ensemble) -> PluginLocator:
    return PluginLocator().startup({**servers.settings(), **timeouts(PATIENT_SECONDS)})


def test_a_server_that_comes_back_empty(ensemble: Ensemble, open_client: Open) -> None:
    client, heard = open_client(), Recorder[ValueChange[str]]()
    storage = client.storage()
    version = storage.put("k", "old")
    for _ in range(20):
        version = storage.update("k", "old")
    client.listener_registry().add_value_change_listener("k", heard)
    election = client.leader_election("s")
    assert election.nominate("c", "")
    old = election.leadership("c")
    assert old is not None
    ensemble.nodes[0].restart(empty=True)
    eventually(lambda: heard.events and heard.events[-1].value is None)
    eventually(lambda: not old.is_valid(), what="the term of the lost data is over")
    new = eventually(lambda: election.leadership("c"), what="there is a new term")
    assert new.is_valid()
    eventually(lambda: client.storage().put("k", "new") < version)
    eventually(lambda: heard.events[-1].value == "new")


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_one_of_three_is_dead_at_startup(three: Ensemble, dead: int) -> None:
    three.nodes[dead].kill()
    try:
        with _open(three) as client:
            client.storage().put(f"dead/{dead}", "v")
            assert client.storage().fetch(f"dead/{dead}").result() == "v"
    finally:
        three.restart()


def test_reads_go_on_while_the_server_in_use_is_frozen(three: Ensemble) -> None:
    leader = three.leader()
    follower = next(node for node in three.nodes if node is not leader)
    first = f"{follower.address},{leader.address}"
    settings = {
        **three.settings(),
        **timeouts(PATIENT_SECONDS),
        "plugin.consul.address": first,
    }
    with PluginLocator().startup(settings) as client:
        client.storage().put("frozen/k", "v")
        assert client.backend.describe()["server"] == follower.address
        follower.stop()
        try:
            started = time.monotonic()
            assert client.storage().fetch("frozen/k").result() == "v"
            assert time.monotonic() - started < PATIENT_SECONDS * time_scale()
            assert client.backend.describe()["server"] == leader.address
        finally:
            follower.resume()


def test_reads_and_close_end_in_time_at_a_frozen_server(
    ensemble: Ensemble, open_client: Open
) -> None:
    client = open_client()
    client.group_membership("g").join("m", "")
    futures = []
    with ensemble.frozen():
        started = time.monotonic()
        futures = [client.storage().fetch(f"k{number}") for number in range(1000)]
        assert {type(future.exception()) for future in futures} == {UnavailableError}
        assert time.monotonic() - started < OPERATION_SECONDS * 1.1 + 2 * time_scale()
        started = time.monotonic()
        client.close()
        assert time.monotonic() - started < OPERATION_SECONDS * time_scale()


def test_new_watches_at_a_frozen_server_do_not_delay_a_read(
    ensemble: Ensemble, open_client: Open
) -> None:
    client = open_client()
    storage, observe = client.storage(), client.backend.observe
    with ensemble.frozen():
        for number in range(40):
            observe.watch(Target(Kind.VALUE, "observed", str(number)), lambda _state: None)
        started = time.monotonic()
        future = storage.fetch("k")
        assert not future.done()  # which has it done by a thread of the backend
        assert type(future.exception()) is UnavailableError
        assert time.monotonic() - started < OPERATION_SECONDS * 1.1 + 2 * time_scale()
