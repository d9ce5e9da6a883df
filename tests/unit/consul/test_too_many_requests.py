"""A server that takes no more connections of this machine, beside others that do."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kip30 import PluginLocator, ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

pytestmark = pytest.mark.large

MOST = 40


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    limit = f"-hcl=limits {{ http_max_conns_per_client = {MOST} }}"
    folder = tmp_path_factory.mktemp("limited")
    with start("consul", 3, folder=folder, extra=[limit]) as servers:
        yield servers


def _fill(address: str) -> ExitStack:
    """Hold as many connections to *address* as it takes of one machine."""
    host, port = address.rsplit(":", 1)
    held = ExitStack()
    for _ in range(MOST):
        held.enter_context(socket.create_connection((host, int(port))))
    return held


def test_a_client_starts_on_another_server(ensemble: Ensemble, open_client: Open) -> None:
    with _fill(ensemble.nodes[0].address):
        client = open_client(**PATIENT)
        assert client.leader_election("s").nominate("c", "")
        assert client.backend.describe()["server"] != ensemble.nodes[0].address


def test_a_client_goes_to_another_server(ensemble: Ensemble, open_client: Open) -> None:
    client, heard = open_client(**PATIENT), Recorder[ValueChange[str]]()
    election = client.leader_election("gone")
    assert election.nominate("c", "")
    client.listener_registry().add_value_change_listener("gone/k", heard)
    with _fill(ensemble.nodes[0].address):
        eventually(lambda: _server_of(client) != ensemble.nodes[0].address, within=30)
        client.storage().set("gone/k", "v")
        eventually(lambda: heard.events and heard.events[-1].value == "v")
        assert election.leadership("c")


def _server_of(client: PluginLocator) -> str:
    """Return the server in use, after as many reads at once as take new connections."""
    storage = client.storage()
    with ThreadPoolExecutor(MOST) as threads:
        list(threads.map(storage.get, ["gone/k"] * MOST))
    return client.backend.describe()["server"]
