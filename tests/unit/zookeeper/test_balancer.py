"""One address for several servers: each connection may reach another one."""

import threading
from collections.abc import Iterator

import pytest

from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open
from tests.unit.zookeeper.balancer import Balancer, follows

pytestmark = pytest.mark.large

_KEY = "zookeeper.connect"


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("zookeeper", 3, folder=tmp_path_factory.mktemp("balancer")) as servers:
        yield servers


def test_a_leader_is_not_taken_for_a_follower(open_client: Open, ensemble: Ensemble) -> None:
    """The session is the leader's, and a follower answers the question."""
    leader = ensemble.leader()
    follower = next(node for node in ensemble.nodes if node is not leader)
    balancer = Balancer([leader.port, follower.port])
    try:
        client = open_client(**{_KEY: balancer.address})
        eventually(lambda: balancer.taken > 1)
        eventually(_is_answered)
        assert not follows(client)
    finally:
        balancer.close()


def test_a_server_that_is_named_among_others_is_asked(
    open_client: Open, ensemble: Ensemble
) -> None:
    leader = ensemble.leader()
    followers = [node.address for node in ensemble.nodes if node is not leader]
    client = open_client(**{_KEY: ",".join(followers)})
    eventually(lambda: follows(client))


def _is_answered() -> bool:
    """Return whether the question about the session's server has been answered."""
    return not any(one.name == "kip30-zookeeper-mode" for one in threading.enumerate())
