"""A ring takes half a minute to start, so the tests share one, and each leaves it whole."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.certificates import Authority
from kip30_conformance.servers.cql_probe import serves
from kip30_conformance.servers.needing import needed

from .talking import others

pytestmark = [pytest.mark.large, pytest.mark.timeout(600)]

ANY = "SELECT key FROM system.local"
NOTICED_SECONDS = 40


@pytest.fixture(scope="module")
def ring() -> Iterator[Ensemble]:
    with needed("cassandra", 3) as ensemble:
        yield ensemble


def test_settings_name_every_node(ring: Ensemble) -> None:
    backend, addresses = ring.settings().values()
    assert backend == "cassandra"
    assert addresses.split(",") == [node.address for node in ring.nodes]


def test_a_link_maps_the_address_of_each_node_to_its_port(ring: Ensemble) -> None:
    with ring.link() as link:
        told = link.settings()["plugin.cassandra.address.map"]
        assert told.split(",") == [
            f"{node.address}=127.0.0.1:{port}"
            for node, port in zip(ring.nodes, link.ports, strict=True)
        ]


def test_a_link_carries_and_is_cut(ring: Ensemble) -> None:
    with ring.link() as link:
        proxy = ("127.0.0.1", link.ports[1])
        assert serves(proxy, ANY, 10)
        link.cut()
        assert not serves(proxy, ANY, 0.5)
        assert link.counted().dropped_to_server > 0
        link.heal()
        link.half_open("client")
        assert not serves(proxy, ANY, 0.5)
        assert link.counted().held > 0
        link.heal()
        assert serves(proxy, ANY, 10)


def test_the_first_that_serves_is_taken_for_the_leader(ring: Ensemble) -> None:
    first, second, _ = ring.nodes
    eventually(lambda: ring.leader() is first, what="the first one serves")
    first.stop()
    assert psutil.Process(first.pid).status() == psutil.STATUS_STOPPED
    eventually(
        lambda: ring.leader() is second,
        within=NOTICED_SECONDS,
        what="the second one does without the first",
    )
    first.resume()
    ring.await_ready()


def test_killed_and_restarted(ring: Ensemble) -> None:
    node = ring.nodes[2]
    old = node.kill()
    assert not psutil.pid_exists(old)
    assert not node.is_ready()
    ring.await_ready(others(ring, node))
    assert node.restart() == (old, node.pid)
    ring.await_ready()


def test_an_isolated_node_has_no_quorum(ring: Ensemble) -> None:
    lonely = ring.nodes[1]
    before = sum(one.dropped for one in ring.peer_counts().values())
    ring.isolate(lonely)
    eventually(
        lambda: not lonely.is_ready(), within=NOTICED_SECONDS, what="the isolated one serves nobody"
    )
    ring.await_ready(others(ring, lonely))
    assert sum(one.dropped for one in ring.peer_counts().values()) > before
    ring.heal()
    ring.await_ready()


def test_a_ring_beside_another(ring: Ensemble) -> None:
    with needed("cassandra") as alone:
        assert alone.leader() is alone.nodes[0]
        assert {node.port for node in ring.nodes}.isdisjoint({alone.nodes[0].port})
        ring.await_ready()


def test_tls_and_logins(tmp_path: Path) -> None:
    own = Authority(tmp_path).sign("node").both
    encryption = (
        "client_encryption_options: {enabled: true, optional: false, ssl_context_factory: "
        "{class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}, "
        f"keystore: {own}}}"
    )
    logins = ["authenticator: PasswordAuthenticator", "authorizer: CassandraAuthorizer"]
    with needed("cassandra", secure=True, extra=[encryption, *logins]) as ensemble:
        assert ensemble.nodes[0].is_ready()
        pid = ensemble.nodes[0].pid
    assert not psutil.pid_exists(pid)
