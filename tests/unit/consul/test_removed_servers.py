"""Servers that leave the catalog, or are removed from it: sessions do not go with them."""

from collections.abc import Iterator

import pytest

from kip30.config import Written
from kip30_conformance.clients.rivals import Rivals
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, opening

from .admin import Admin

pytestmark = pytest.mark.large

SESSION_SECONDS = 30.0
"""Longer than servers take to notice that one is lost (3 s here) and to remove it (10 s more)."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield servers that soon notice that one of them is lost."""
    folder = tmp_path_factory.mktemp("three")
    with start("consul", 3, folder=folder, extra=["-hcl=gossip_lan { suspicion_mult = 1 }"]) as one:
        yield one


def test_a_cut_off_leader_is_the_only_one_although_autopilot_removed_its_server(
    three: Ensemble, namespace: str
) -> None:
    leading = three.leader()
    alone = next(node for node in three.nodes if node is not leading)
    rest = [node for node in three.nodes if node is not alone]
    admin = Admin(leading.port)
    with opening(three, namespace, session_ms=round(SESSION_SECONDS * 1000)) as open_one:
        elections = {
            name: open_one(**settings).leader_election("s")
            for name, settings in (
                ("a", _at(alone.address)),
                ("b", _at(*(node.address for node in rest))),
            )
        }
        with Rivals(elections) as rivals:
            assert elections["a"].nominate("a", "")
            assert not elections["b"].nominate("b", "")
            term = elections["a"].leadership("a")
            assert term is not None
            three.isolate(alone)
            eventually(lambda: f"node{alone.index}" not in admin.nodes(), within=SESSION_SECONDS)
            assert term.is_valid(), "the server was removed too late to prove anything"
            eventually(lambda: not term.is_valid(), within=SESSION_SECONDS)
            eventually(lambda: elections["b"].leadership("b"), within=SESSION_SECONDS)
            three.heal()
        rivals.check()


def test_a_session_outlives_the_registration_of_the_server_that_opened_it(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    election = open_client().leader_election("s")
    assert election.nominate("a", "")
    term = election.leadership("a")
    assert term is not None
    session = admin.get(f"{namespace}/service/s/leader")["Session"]
    admin.tell("PUT", "catalog/deregister", {"Node": "node0"})
    throughout(term.is_valid, seconds=1.0)
    assert admin.get(f"{namespace}/service/s/leader")["Session"] == session


def test_the_node_of_sessions_is_registered_again(open_client: Open, admin: Admin) -> None:
    election = open_client().leader_election("s")
    assert election.nominate("a", "")
    term = election.leadership("a")
    assert term is not None
    admin.tell("PUT", "catalog/deregister", {"Node": "kip30-sessions"})
    eventually(lambda: election.leadership("a") not in {None, term})
    assert "kip30-sessions" in admin.nodes()


def _at(*addresses: str) -> dict[str, Written]:
    return {"plugin.consul.address": ",".join(addresses)}
