"""Servers that die, freeze, forget, or come back empty."""

import time
from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from kip30 import OutcomeUnknownError, UnavailableError, ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open
from tests.unit.stores.outages import OPERATION_SECONDS, OutageCases, open_patiently


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("etcd", 3, folder=tmp_path_factory.mktemp("three")) as servers:
        yield servers


class TestOutages(OutageCases):
    pass


def test_a_compacted_history_leaves_no_gap(ensemble: Ensemble, open_client: Open) -> None:
    client, heard = open_client(), Recorder[ValueChange[str]]()
    storage = client.storage()
    storage.put("k", "0")
    with ensemble.link() as link:
        watching = open_client(**link.settings())
        watching.listener_registry().add_value_change_listener("k", heard)
        link.cut()
        for number in range(1, 20):
            storage.update("k", str(number))
        ensemble.compact()
        link.heal()
        eventually(lambda: heard.events and heard.events[-1].value == "19")


def test_reads_go_on_while_the_server_in_use_is_frozen(three: Ensemble) -> None:
    with open_patiently(three) as client:
        client.storage().put("frozen/k", "v")
        used = client.backend.describe()["server"]
        node = next(one for one in three.nodes if one.address == used)
        node.stop()
        try:
            started = time.monotonic()
            assert client.storage().fetch("frozen/k").result() == "v"
            assert time.monotonic() - started < OPERATION_SECONDS * time_scale()
            assert client.backend.describe()["server"] != used
        finally:
            node.resume()


def test_a_join_on_a_frozen_server_ends_at_the_operation_timeout(
    ensemble: Ensemble, open_client: Open
) -> None:
    patient = {"plugin.operation.timeout.ms": 2000, "plugin.session.timeout.ms": 60_000}
    group = open_client(**patient).group_membership("g")
    group.join("m", "")
    with ensemble.frozen():
        started = time.monotonic()
        with pytest.raises(OutcomeUnknownError):
            group.join("n", "")
        assert time.monotonic() - started < 2 * 1.1 + 2 * time_scale()


def test_a_read_outlives_those_it_travels_with(ensemble: Ensemble, open_client: Open) -> None:
    open_client().storage().put("k", "v")
    with ensemble.link() as link:
        patient = {"plugin.operation.timeout.ms": 3000, "plugin.session.timeout.ms": 9000}
        client = open_client(**link.settings(), **patient)
        link.half_open("client")
        under_way_and_one_more = [client.storage().fetch("k") for _ in range(5)]
        wait(under_way_and_one_more, timeout=2)
        later = client.storage().fetch("k")
        assert {type(one.exception()) for one in under_way_and_one_more} == {UnavailableError}
        link.heal()
        assert later.result() == "v"
