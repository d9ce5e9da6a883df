"""Servers that speak TLS, demand certificates, and have to be who they say they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import DefiniteError, PluginLocator
from kip30.config import Written
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.certificates import Authority
from kip30_conformance.servers.needing import needed

from .doctor import diagnosis

CONNECT_MS = round(4000 * time_scale())
_FACTORY = "org.apache.cassandra.security.PEMBasedSslContextFactory"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def _encryption(authority: Authority, own: Path) -> str:
    return (
        "client_encryption_options: {enabled: true, optional: false, require_client_auth: true,"
        f" ssl_context_factory: {{class_name: {_FACTORY}}},"
        f" keystore: {own}, truststore: {authority.certificate}}}"
    )


@pytest.fixture(scope="module")
def servers(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    encryption = _encryption(authority, authority.sign("server").both)
    folder = tmp_path_factory.mktemp("tls")
    with needed("cassandra", folder=folder, secure=True, extra=[encryption]) as ensemble:
        yield ensemble


def _open(servers: Ensemble, **tls: Written) -> PluginLocator:
    return PluginLocator().startup(
        {**servers.settings(), "plugin.connect.timeout.ms": CONNECT_MS, **tls}
    )


def _identified(authority: Authority) -> dict[str, Written]:
    certificate, key, _ = authority.sign("client")
    return {
        "plugin.cassandra.tls.ca": authority.certificate,
        "plugin.cassandra.tls.cert": certificate,
        "plugin.cassandra.tls.key": key,
    }


def test_a_server_under_another_name(servers: Ensemble, authority: Authority) -> None:
    port = servers.nodes[0].port
    elsewhere = {"plugin.cassandra.contact.points": f"localhost:{port}"}
    with pytest.raises(DefiniteError, match=r"certificate must name the host"):
        _open(servers, **{**_identified(authority), **elsewhere})


def test_the_doctor_names_the_tls_setting_to_correct(
    servers: Ensemble, authority: Authority, tmp_path: Path
) -> None:
    mine, stranger = _identified(authority), Authority(tmp_path)

    def told(**tls: Written) -> str:
        return diagnosis(**{**servers.settings(), "plugin.connect.timeout.ms": CONNECT_MS, **tls})

    assert told().endswith("if it demands TLS, or another certificate, see plugin.cassandra.tls.*")
    nameless = told(**{"plugin.cassandra.tls.ca": authority.certificate})
    # How it says so is up to who is first: its alert, or the end of the connection.
    assert "set plugin.cassandra.tls.cert and plugin.cassandra.tls.key" in nameless
    assert "plugin.cassandra.tls" in told(
        **{**_identified(stranger), "plugin.cassandra.tls.ca": authority.certificate}
    )
    assert "plugin.cassandra.tls.ca must hold the authority" in told(
        **{**mine, "plugin.cassandra.tls.ca": stranger.certificate}
    )
    assert "plugin.cassandra.tls.ca must hold the authority" in told(
        **{"plugin.cassandra.tls": "true"}
    )
    port = servers.nodes[0].port
    assert "certificate must name the host" in told(
        **{**mine, "plugin.cassandra.contact.points": f"localhost:{port}"}
    )
