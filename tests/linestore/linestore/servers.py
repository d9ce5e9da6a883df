"""The server as the conformance suite runs it: ``kip30 conform --server line``."""

import json
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from typing_extensions import override

from kip30_conformance.servers.installed import Installed
from kip30_conformance.servers.ports import HOST
from kip30_conformance.servers.store import NodePorts, Plan, Store
from linestore.neighbour import LineNeighbour

_SECONDS = 1.0


class LineServers(Store):
    """One server; it has no peers."""

    name = "line"
    peer_ports = 0
    elects = False
    sizes = (1,)
    client_threads = 4  # of the pool that sends requests

    @override
    def installed(self, version: str | None) -> Installed:
        return Installed("1.0", (sys.executable, "-m", "linestore.server"))

    @override
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        plan.data.mkdir(parents=True, exist_ok=True)
        return [*command, str(plan.place.client), str(plan.data / "log")]

    @override
    def is_ready(self, place: NodePorts) -> bool:
        with (
            suppress(OSError, ValueError),
            socket.create_connection((HOST, place.client), _SECONDS) as one,
        ):
            one.sendall(b'{"op": "get", "keys": []}\n')
            return "revision" in json.loads(one.makefile().readline())
        return False

    @override
    def is_leader(self, place: NodePorts) -> bool:
        return self.is_ready(place)

    @override
    def settings(self, addresses: str) -> dict[str, str]:
        return {"plugin.backend": self.name, "plugin.line.address": addresses}

    @override
    def neighbour(self, addresses: str, root: str) -> LineNeighbour:
        return LineNeighbour(addresses, root)
