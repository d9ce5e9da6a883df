"""A member that has no vote yet, beside one that has."""

import socket
from collections.abc import Iterator

import pytest

from kip30 import ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open

from .admin import Admin


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("etcd", folder=tmp_path_factory.mktemp("voter")) as servers:
        yield servers


@pytest.fixture(scope="module")
def learner(ensemble: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a learner of the voter's cluster."""
    admin = Admin(ensemble.nodes[0].address)
    (voter,) = admin.tell("cluster/member/list")["members"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        peer = f"http://127.0.0.1:{free.getsockname()[1]}"
    admin.tell("cluster/member/add", peerURLs=[peer], isLearner=True)
    words = [
        "--name=learner",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={voter['name']}={voter['peerURLs'][0]},learner={peer}",
        "--initial-cluster-state=existing",
    ]
    with start("etcd", folder=tmp_path_factory.mktemp("learner"), extra=words) as servers:
        yield servers.nodes[0].address


def test_a_learner_that_is_named_first_is_left(
    ensemble: Ensemble, learner: str, open_client: Open
) -> None:
    endpoints = f"{learner},{ensemble.nodes[0].address}"
    client = open_client(**{**PATIENT, "plugin.etcd.endpoints": endpoints})
    assert client.leader_election("s").nominate("c", "")
    assert client.backend.describe()["server"] == ensemble.nodes[0].address


def test_a_client_that_meets_a_learner_goes_back(
    ensemble: Ensemble, learner: str, open_client: Open
) -> None:
    heard = Recorder[ValueChange[str]]()
    with ensemble.link() as link:
        endpoints = f"{link.settings()['plugin.etcd.endpoints']},{learner}"
        client = open_client(**{**PATIENT, "plugin.etcd.endpoints": endpoints})
        election = client.leader_election("back")
        assert election.nominate("c", "")
        client.listener_registry().add_value_change_listener("back/k", heard)
        link.refuse()
        eventually(
            lambda: client.backend.describe()["server"] == learner, what="the learner is in use"
        )
        link.heal()
        eventually(lambda: client.storage().set("back/k", "v"), what="the voter is in use")
        eventually(lambda: heard.events and heard.events[-1].value == "v")
        assert election.leadership("c")
