"""Listening ports of the proxies between clients and servers: opened, shut, refusing."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from typing_extensions import override

from kip30_conformance.servers.ports import listener
from kip30_conformance.servers.proxy_route import Route

UNUSED = "no server listens behind it"
_REFUSING = "it was asked to refuse"


class ProxyPort:
    """A listening port, and what happens to connections to it."""

    def __init__(self, welcome: Callable[[socket.socket], None]) -> None:
        """Listen; *welcome* gets every connection."""
        self._welcome = welcome
        self._shut_for = set[str]()
        self._socket = listener()
        self._socket.settimeout(0)
        self._accepting = asyncio.ensure_future(self._accept())

    @property
    def port(self) -> int:
        """The port on the loopback interface."""
        port: int = self._socket.getsockname()[1]
        return port

    async def shut(self, reason: str) -> None:
        """Refuse connections, and keep the port."""
        if not self._shut_for:
            await self._stop_accepting()
            self._socket.shutdown(socket.SHUT_RDWR)
        self._shut_for.add(reason)

    def open(self, reason: str) -> None:
        """Accept connections again, unless there is another reason not to."""
        if self._shut_for == {reason}:
            self._socket.listen()
            self._accepting = asyncio.ensure_future(self._accept())
        self._shut_for.discard(reason)

    async def close(self) -> None:
        """Release the port."""
        await self._stop_accepting()
        self._socket.close()

    async def _stop_accepting(self) -> None:
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting

    async def _accept(self) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            client.settimeout(0)
            self._welcome(client)


class Proxy(Route):
    """A route of one client to one node, with a port of its own.

    Attributes:
        proxy_port: The port that the client connects to.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        """Let clients of this proxy reach *address*."""
        super().__init__()
        self.proxy_port = ProxyPort(lambda client: self.carry(client, address))

    async def refuse(self) -> None:
        """Refuse new connections, and reset open ones."""
        await self.proxy_port.shut(_REFUSING)
        await self.reset()

    @override
    async def heal(self) -> None:
        self.proxy_port.open(_REFUSING)
        await super().heal()

    async def close(self) -> None:
        """Close the port and all connections."""
        await self.proxy_port.close()
        await self.reset()
