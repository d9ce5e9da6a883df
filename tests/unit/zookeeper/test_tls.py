"""Servers that speak TLS and demand certificates: cases that are the same on every store."""

from pathlib import Path

from typing_extensions import override

from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.stores.tls import Files, TlsCases


class TestTls(TlsCases):
    store = "zookeeper"
    addresses = "zookeeper.connect"
    certificate_word = "certificate"

    @classmethod
    @override
    def start(cls, files: Files, folder: Path) -> Ensemble:
        return needed(
            "zookeeper",
            folder=folder,
            secure=True,
            extra=[
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                "ssl.clientAuth=need",
                f"ssl.keyStore.location={files.server.both}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={files.ca}",
                "ssl.trustStore.type=PEM",
            ],
        )
