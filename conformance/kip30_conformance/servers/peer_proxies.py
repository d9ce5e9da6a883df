"""The proxies between the nodes of an ensemble."""

import socket
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from kip30_conformance.servers import socket_owners
from kip30_conformance.servers.datagram_proxies import Datagrams
from kip30_conformance.servers.ports import BEHIND, HOST
from kip30_conformance.servers.processes import Processes
from kip30_conformance.servers.proxied_connection import Greeting
from kip30_conformance.servers.proxy_listener import ProxyPort
from kip30_conformance.servers.proxy_route import Route

_STRANGER = -1
_PATIENCE_SECONDS = 1.0


class PeerProxies:
    """A proxy port before every port at which a node listens to others, and a route for each pair.

    Which node a connection comes from is known by the process that holds its other end. One
    whose other end was closed at once comes from a stranger, and is lost with its target.
    """

    def __init__(self, processes: Processes) -> None:
        """Prepare proxies between the nodes that run as *processes*."""
        self._processes = processes
        self._proxy_ports: list[list[ProxyPort]] = []
        self._routes: dict[tuple[int, int], Route] = {}
        self._masquerade: Mapping[str, str] = {}
        self._behind = False

    def open(
        self, ports: Sequence[Sequence[int]], *, behind: bool = False, datagrams: bool = False
    ) -> list[list[int]]:
        """Return the ports that others must use instead of each node's own *ports*.

        Args:
            ports: Of each node, those at which it listens to others.
            behind: Whether it listens at the returned ones instead, of the address `BEHIND`.
            datagrams: Whether datagrams go there as well; only for nodes that are *behind*.
        """
        self._behind = behind
        nodes = range(len(ports))
        self._routes = {pair: Route() for pair in product([*nodes, _STRANGER], nodes)}
        self._proxy_ports = [
            [self._proxy_port(node, port) for port in ports[node]] for node in nodes
        ]
        if datagrams:
            seen = {
                proxy_port.port: node for node in nodes for proxy_port in self._proxy_ports[node]
            }
            self._datagrams = Datagrams(seen, self._routes)
        return [
            [proxy_port.port for proxy_port in proxy_ports] for proxy_ports in self._proxy_ports
        ]

    def proxy_ports(self, node: int) -> list[ProxyPort]:
        """Return the proxy ports before a node."""
        return self._proxy_ports[node]

    def disguise(self, masquerade: Mapping[str, str]) -> None:
        """Replace texts by others of the same length in a node's first bytes to another."""
        self._masquerade = masquerade

    async def separate(self, one: int, other: int) -> None:
        """Drop everything between two nodes."""
        for pair in ((one, other), (other, one)):
            await self._routes[pair].cut()

    async def isolate(self, node: int) -> None:
        """Drop everything between a node and all others."""
        for pair, route in self._routes.items():
            if node in pair:
                await route.cut()

    async def heal(self) -> None:
        """Reconnect all of them."""
        for route in self._routes.values():
            await route.heal()

    def counted(self) -> list[dict[str, Any]]:
        """Return the counts of every pair of nodes with any traffic."""
        return [
            {"from": one, "to": other, **route.traffic.counted()}
            for (one, other), route in self._routes.items()
            if route.traffic.connections
        ]

    def _proxy_port(self, node: int, port: int) -> ProxyPort:
        return ProxyPort(partial(self._welcome, node, port))

    def _welcome(self, node: int, port: int, client: socket.socket) -> None:
        greeting = Greeting(masquerade=self._masquerade, patience_seconds=_PATIENCE_SECONDS)
        target = (BEHIND, client.getsockname()[1]) if self._behind else (HOST, port)
        self._routes[self._owner(client), node].carry(client, target, greeting)

    def _owner(self, client: socket.socket) -> int:
        """Return the node that *client* is a connection from."""
        try:
            number = socket_owners.inode(client.getpeername(), client.getsockname())
        except OSError:
            return _STRANGER
        pids = self._processes.pids()
        owners = (node for node, pid in pids.items() if number and socket_owners.holds(pid, number))
        return next(owners, _STRANGER)
