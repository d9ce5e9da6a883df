"""Servers that die, freeze, or come back empty."""

import time
from collections.abc import Iterator

import pytest

from kip30 import PluginLocator, UnavailableError
from kip30.driver.records import Kind, Target
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, timeouts
from tests.unit.stores.outages import OPERATION_SECONDS, OutageCases


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("consul", 3, folder=tmp_path_factory.mktemp("three")) as servers:
        yield servers


class TestOutages(OutageCases):
    pass


def test_reads_go_on_while_the_server_in_use_is_frozen(three: Ensemble) -> None:
    leader = three.leader()
    follower = next(node for node in three.nodes if node is not leader)
    first = f"{follower.address},{leader.address}"
    settings = {
        **three.settings(),
        **timeouts(OPERATION_SECONDS),
        "plugin.consul.address": first,
    }
    with PluginLocator().startup(settings) as client:
        client.storage().put("frozen/k", "v")
        assert client.backend.describe()["server"] == follower.address
        follower.stop()
        try:
            started = time.monotonic()
            assert client.storage().fetch("frozen/k").result() == "v"
            assert time.monotonic() - started < OPERATION_SECONDS * time_scale()
            assert client.backend.describe()["server"] == leader.address
        finally:
            follower.resume()


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
