"""Servers that speak TLS and demand certificates."""

from pathlib import Path

from typing_extensions import override

from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.stores.tls import Files, TlsCases


class TestTls(TlsCases):
    store = "consul"
    addresses = "plugin.consul.address"

    @classmethod
    @override
    def start(cls, files: Files, folder: Path) -> Ensemble:
        tls = (
            f'-hcl=tls {{ https {{ ca_file = "{files.ca}" cert_file = "{files.server.certificate}"'
            f' key_file = "{files.server.key}" verify_incoming = true }} }}'
        )
        return needed("consul", folder=folder, secure=True, extra=[tls])
