"""Clients that servers know by their certificates."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from kip30 import AuthenticationError, StoreError
from kip30.config import Written
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.certificates import Authority, Signed
from kip30_conformance.servers.needing import needed
from tests.unit.clients import Open

APP, EVE = "CN=app", "CN=eve"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def ensemble(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder: Path = tmp_path_factory.mktemp("certificates")
    with needed(
        "zookeeper",
        folder=folder,
        secure=True,
        extra=[
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.clientAuth=need",
            f"ssl.keyStore.location={authority.sign('server').both}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={authority.certificate}",
            "ssl.trustStore.type=PEM",
        ],
    ) as servers:
        yield servers


@pytest.fixture(scope="module")
def app(authority: Authority) -> Signed:
    return authority.sign("app")


@pytest.fixture(scope="module")
def eve(authority: Authority) -> Signed:
    return authority.sign("eve")


@pytest.fixture
def two(app: Signed, eve: Signed) -> tuple[Signed, Signed]:
    return app, eve


def test_nodes_belong_to_the_subject_of_the_certificate(
    open_client: Open, ensemble: Ensemble, authority: Authority, app: Signed, namespace: str
) -> None:
    client = open_client(**tls(authority, app))
    client.storage().put("n/k", "v")
    client.group_membership("g").join("m", "")
    assert client.leader_election("s").nominate("c", "")
    with kazoo(ensemble, authority, app) as look:
        for path in ("", "/kv/n/k", "/group/g/m", "/service/s/leader", "/service/s/epoch"):
            ((granted,), _) = look.get_acls(f"/{namespace}{path}")
            assert (granted.id.scheme, granted.id.id) == ("x509", APP)
    assert open_client(**tls(authority, app)).storage().fetch("n/k").result() == "v"


def test_another_certificate_does_not_suffice(
    open_client: Open, authority: Authority, app: Signed, eve: Signed
) -> None:
    open_client(**tls(authority, app)).storage().put("n/k", "v")
    with pytest.raises(AuthenticationError):
        open_client(**tls(authority, eve)).storage().get("n/k")


def test_an_untrusted_certificate_is_named_by_its_subject(
    open_client: Open,
    ensemble: Ensemble,
    authority: Authority,
    two: tuple[Signed, Signed],
    namespace: str,
) -> None:
    app, eve = two
    both = [make_acl("x509", name, all=True) for name in (APP, EVE)]
    with kazoo(ensemble, authority, eve) as owner:
        owner.create(f"/{namespace}", acl=both)
    mine = tls(authority, app)
    with pytest.raises(StoreError, match=rf"^/{namespace} may be changed by x509:{EVE}"):
        open_client(**mine)
    other = {"plugin.zookeeper.acl.trusted": "x509:CN=ops,O=example"}
    with pytest.raises(StoreError, match=f"x509:{EVE}"):
        open_client(**mine, **other)
    trusted: dict[str, Written] = {"plugin.zookeeper.acl.trusted": f"sasl:admin; x509:{EVE}"}
    open_client(**mine, **trusted).storage().put("n/k", "v")


def tls(authority: Authority, signed: Signed) -> dict[str, Written]:
    prefix = "plugin.zookeeper.tls"
    return {
        prefix: "true",
        f"{prefix}.ca": authority.certificate,
        f"{prefix}.certificate": signed.certificate,
        f"{prefix}.key": signed.key,
        "plugin.session.timeout.ms": 20_000,
        "plugin.operation.timeout.ms": 10_000,
    }


@contextmanager
def kazoo(ensemble: Ensemble, authority: Authority, signed: Signed) -> Generator[Any]:
    """Yield a client of Kazoo's that the server knows by *signed*."""
    client: Any = KazooClient(
        hosts=ensemble.nodes[0].address,
        use_ssl=True,
        ca=str(authority.certificate),
        certfile=str(signed.certificate),
        keyfile=str(signed.key),
    )
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
