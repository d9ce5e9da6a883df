"""The proxies between nodes that also send each other datagrams."""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress

from kip30_conformance.servers.ports import BEHIND, HOST
from kip30_conformance.servers.proxy_route import Route

_MAX_BYTES = 65_536


class Datagrams:
    """Forwards each datagram, from the port by which others know its sender.

    It drops those between nodes that are cut off from each other, and those of strangers.
    """

    def __init__(self, nodes: Mapping[int, int], routes: Mapping[tuple[int, int], Route]) -> None:
        """Listen on the ports of *nodes*, each of which has the same one on `BEHIND`."""
        self._nodes = nodes
        self._routes = routes
        self._sockets = {port: _bound(port) for port in nodes}
        for port, one in self._sockets.items():
            asyncio.get_running_loop().add_reader(one, self._hand_on, port)

    def _hand_on(self, port: int) -> None:
        with suppress(OSError):
            content, (host, source) = self._sockets[port].recvfrom(_MAX_BYTES)
            if host == BEHIND and source in self._nodes and self._passes(source, port, content):
                self._sockets[source].sendto(content, (BEHIND, port))

    def _passes(self, source: int, port: int, content: bytes) -> bool:
        lane = self._routes[self._nodes[source], self._nodes[port]].traffic.to_server
        if lane.dropping:
            lane.tally.dropped += len(content)
        else:
            lane.tally.forwarded += len(content)
        return not lane.dropping


def _bound(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(0)
    made.bind((HOST, port))
    return made
