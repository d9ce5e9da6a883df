"""Servers that speak TLS and demand certificates."""

from pathlib import Path

from typing_extensions import override

from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.stores.tls import Files, TlsCases


class TestTls(TlsCases):
    store = "etcd"
    addresses = "plugin.etcd.endpoints"

    @classmethod
    @override
    def start(cls, files: Files, folder: Path) -> Ensemble:
        return needed(
            "etcd",
            folder=folder,
            secure=True,
            extra=[
                f"--cert-file={files.server.certificate}",
                f"--key-file={files.server.key}",
                "--client-cert-auth",
                f"--trusted-ca-file={files.ca}",
            ],
        )
