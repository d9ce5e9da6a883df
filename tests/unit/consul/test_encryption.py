"""Servers that speak TLS and demand certificates."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import AuthenticationError, ConfigError, PluginLocator
from kip30.config import Written
from kip30_conformance.patience import TIME_SCALE
from kip30_conformance.servers import Ensemble, start
from kip30_conformance.servers.certificates import Authority

CONNECT_MS = round(2000 * TIME_SCALE)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def servers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    certificate, key, _ = authority.sign("node")
    tls = (
        f'-hcl=tls {{ https {{ ca_file = "{authority.certificate}" '
        f'cert_file = "{certificate}" key_file = "{key}" verify_incoming = true }} }}'
    )
    folder = tmp_path_factory.mktemp("tls")
    with start("consul", folder=folder, secure=True, extra=[tls]) as ensemble:
        yield ensemble


def _open(servers: Ensemble, **tls: Written) -> PluginLocator:
    return PluginLocator().startup(
        {**servers.settings(), "plugin.connect.timeout.ms": CONNECT_MS, **tls}
    )


def test_both_show_certificates(servers: Ensemble, authority: Authority) -> None:
    certificate, key, _ = authority.sign("client")
    with _open(
        servers,
        **{
            "plugin.consul.tls.ca": authority.certificate,
            "plugin.consul.tls.cert": certificate,
            "plugin.consul.tls.key": key,
        },
    ) as client:
        client.storage().put("k", "v" * 100_000)
        assert client.storage().fetch("k").result() == "v" * 100_000
        assert client.backend.describe()["version"].startswith("consul 1.")


def test_a_client_without_certificate(servers: Ensemble, authority: Authority) -> None:
    with pytest.raises(AuthenticationError, match=r"plugin\.consul\.tls"):
        _open(servers, **{"plugin.consul.tls.ca": authority.certificate})


def test_a_server_of_another_authority(servers: Ensemble, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match=r"plugin\.consul\.tls"):
        _open(servers, **{"plugin.consul.tls.ca": Authority(tmp_path).certificate})


def test_no_encryption_where_it_is_demanded(servers: Ensemble) -> None:
    with pytest.raises(AuthenticationError, match=r"plugin\.consul\.tls=true"):
        _open(servers)


def test_unreadable_file(servers: Ensemble, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.consul\.tls"):
        _open(servers, **{"plugin.consul.tls.ca": tmp_path / "none.pem"})
