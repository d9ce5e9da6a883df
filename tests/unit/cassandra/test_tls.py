"""Servers that speak TLS and demand certificates: the cases that are the same on every store."""

from pathlib import Path

from typing_extensions import override

from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.stores.tls import Files, TlsCases

_FACTORY = "org.apache.cassandra.security.PEMBasedSslContextFactory"


class TestTls(TlsCases):
    store = "cassandra"
    addresses = "plugin.cassandra.contact.points"

    @classmethod
    @override
    def start(cls, files: Files, folder: Path) -> Ensemble:
        encryption = (
            "client_encryption_options: {enabled: true, optional: false, require_client_auth: true,"
            f" ssl_context_factory: {{class_name: {_FACTORY}}},"
            f" keystore: {files.server.both}, truststore: {files.ca}}}"
        )
        return needed("cassandra", folder=folder, secure=True, extra=[encryption])
