"""Servers that speak TLS and demand certificates: cases of ZooKeeper alone, and few attempts."""

import logging
from collections.abc import Iterator, Mapping

import pytest

from kip30 import AuthenticationError, DefiniteError, PluginLocator
from kip30.config import Written
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble, Link, start
from kip30_conformance.servers.certificates import Authority, Signed

CONNECT_MS = round(2000 * time_scale())
MOST_ATTEMPTS = 20
"""By the connect timeout: attempts are half a second apart, at last."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def mine(authority: Authority) -> Mapping[str, Written]:
    """Return the configuration of a client that is accepted."""
    client = authority.sign("client")
    return {
        "plugin.zookeeper.tls": True,
        "plugin.zookeeper.tls.ca": authority.certificate,
        "plugin.zookeeper.tls.certificate": client.certificate,
        "plugin.zookeeper.tls.key": client.key,
    }


@pytest.fixture(scope="module")
def servers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with _started(tmp_path_factory, authority, authority.sign("server")) as ensemble:
        yield ensemble


def _started(folders: pytest.TempPathFactory, authority: Authority, identity: Signed) -> Ensemble:
    return start(
        "zookeeper",
        folder=folders.mktemp("tls"),
        secure=True,
        extra=[
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.clientAuth=need",
            f"ssl.keyStore.location={identity.both}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={authority.certificate}",
            "ssl.trustStore.type=PEM",
        ],
    )


@pytest.fixture
def link(servers: Ensemble) -> Iterator[Link]:
    with servers.link() as opened:
        yield opened


def _open(link: Link, tls: Mapping[str, Written], **more: Written) -> PluginLocator:
    properties = {**link.settings(), "plugin.connect.timeout.ms": CONNECT_MS, **tls, **more}
    return PluginLocator().startup(properties)


def test_a_client_without_certificate(link: Link, mine: Mapping[str, Written]) -> None:
    anonymous = {key: mine[key] for key in ("plugin.zookeeper.tls", "plugin.zookeeper.tls.ca")}
    with pytest.raises(DefiniteError):
        _open(link, anonymous)
    assert link.counted().connections <= MOST_ATTEMPTS * time_scale()


def test_a_client_of_another_authority(
    link: Link, mine: Mapping[str, Written], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("other")).sign("client")
    with pytest.raises(DefiniteError):
        _open(
            link,
            mine,
            **{
                "plugin.zookeeper.tls.certificate": stranger.certificate,
                "plugin.zookeeper.tls.key": stranger.key,
            },
        )
    assert link.counted().connections <= MOST_ATTEMPTS * time_scale()


def test_a_server_of_another_authority(
    link: Link, mine: Mapping[str, Written], tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other"))
    with pytest.raises(AuthenticationError, match=r"plugin\.zookeeper\.tls\.ca must"):
        _open(link, mine, **{"plugin.zookeeper.tls.ca": other.certificate})
    assert link.counted().connections <= MOST_ATTEMPTS * time_scale()


def test_no_encryption_where_it_is_demanded(link: Link) -> None:
    with pytest.raises(DefiniteError):
        _open(link, {})
    assert link.counted().connections <= MOST_ATTEMPTS * time_scale()


def test_the_wrong_host(
    authority: Authority, mine: Mapping[str, Written], tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = authority.sign("elsewhere", host="DNS:elsewhere.test")
    with _started(tmp_path_factory, authority, elsewhere) as servers, servers.link() as link:
        with pytest.raises(AuthenticationError, match="IP address mismatch"):
            _open(link, mine, **{"plugin.connect.timeout.ms": 10_000})
        with _open(link, mine, **{"plugin.zookeeper.tls.verify.host": False}) as client:
            client.storage().put("k", "v")


def test_the_password_of_a_key_is_shown_nowhere(
    link: Link,
    authority: Authority,
    mine: Mapping[str, Written],
    caplog: pytest.LogCaptureFixture,
) -> None:
    locked = authority.lock("client", "geheim-2")
    caplog.set_level(logging.DEBUG)
    locking: dict[str, Written] = {"plugin.zookeeper.tls.key": locked}
    with _open(link, mine, **locking, **_password("geheim-2")) as client:
        shown = f"{client!r} {client.backend.describe()} {vars(client.backend)}"
    with pytest.raises(ValueError, match="password is wrong") as raised:
        _open(link, mine, **locking, **_password("falsch-2"))
    for secret in ("geheim-2", "falsch-2"):
        assert secret not in f"{shown} {raised.value!r} {caplog.text}"


def _password(password: str) -> dict[str, Written]:
    return {"plugin.zookeeper.tls.key.password": password}
