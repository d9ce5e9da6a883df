"""Servers that speak TLS and demand certificates."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import DefiniteError, PluginLocator
from kip30.config import Written
from kip30_conformance.servers import Ensemble, start


class Certificates:
    """An authority, and what it signed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.ca = folder / f"{name}.pem"
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(folder / f"{name}.key"), "-out", str(self.ca)),
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate for this machine, and of its key."""
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        request, extension = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extension.write_text("subjectAltName=IP:127.0.0.1\n")
        self._run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
        )
        self._run(
            *("x509", "-req", "-in", str(request), "-days", "2", "-CA", str(self.ca)),
            *("-CAkey", str(self.ca.with_suffix(".key")), "-CAcreateserial"),
            *("-extfile", str(extension), "-out", str(certificate)),
        )
        return certificate, key

    def _run(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def servers(
    authority: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ensemble]:
    certificate, key = authority.sign("server")
    with start(
        "etcd",
        folder=tmp_path_factory.mktemp("tls"),
        secure=True,
        extra=[
            f"--cert-file={certificate}",
            f"--key-file={key}",
            "--client-cert-auth",
            f"--trusted-ca-file={authority.ca}",
        ],
    ) as ensemble:
        yield ensemble


def _open(servers: Ensemble, **tls: Written) -> PluginLocator:
    return PluginLocator().startup({**servers.settings(), "plugin.connect.timeout.ms": 2000, **tls})


def test_both_show_certificates(servers: Ensemble, authority: Certificates) -> None:
    certificate, key = authority.sign("client")
    with _open(
        servers,
        **{
            "plugin.etcd.tls.ca": authority.ca,
            "plugin.etcd.tls.cert": certificate,
            "plugin.etcd.tls.key": key,
        },
    ) as client:
        client.storage().put("k", "v")
        assert client.storage().fetch("k").result() == "v"


def test_a_client_without_certificate(servers: Ensemble, authority: Certificates) -> None:
    with pytest.raises(DefiniteError):
        _open(servers, **{"plugin.etcd.tls.ca": authority.ca})


def test_a_server_of_another_authority(servers: Ensemble, tmp_path: Path) -> None:
    with pytest.raises(DefiniteError, match=r"plugin\.etcd\.tls\.ca"):
        _open(servers, **{"plugin.etcd.tls.ca": Certificates(tmp_path, "other").ca})


def test_no_encryption_where_it_is_demanded(servers: Ensemble) -> None:
    with pytest.raises(DefiniteError):
        _open(servers)
