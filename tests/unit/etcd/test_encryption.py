"""Servers that speak TLS and demand certificates."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import DefiniteError, PluginLocator
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
    certificate, key, _ = authority.sign("server")
    with start(
        "etcd",
        folder=tmp_path_factory.mktemp("tls"),
        secure=True,
        extra=[
            f"--cert-file={certificate}",
            f"--key-file={key}",
            "--client-cert-auth",
            f"--trusted-ca-file={authority.certificate}",
        ],
    ) as ensemble:
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
            "plugin.etcd.tls.ca": authority.certificate,
            "plugin.etcd.tls.cert": certificate,
            "plugin.etcd.tls.key": key,
        },
    ) as client:
        client.storage().put("k", "v")
        assert client.storage().fetch("k").result() == "v"


def test_a_client_without_certificate(servers: Ensemble, authority: Authority) -> None:
    with pytest.raises(DefiniteError):
        _open(servers, **{"plugin.etcd.tls.ca": authority.certificate})


def test_a_server_of_another_authority(servers: Ensemble, tmp_path: Path) -> None:
    with pytest.raises(DefiniteError, match=r"plugin\.etcd\.tls\.ca"):
        _open(servers, **{"plugin.etcd.tls.ca": Authority(tmp_path).certificate})


def test_no_encryption_where_it_is_demanded(servers: Ensemble) -> None:
    with pytest.raises(DefiniteError):
        _open(servers)
