"""Listening sockets of the supervisor."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from typing_extensions import override

from kip30_conformance.servers.ports import listener
from kip30_conformance.servers.route import Route

NOBODY = "nobody listens behind it"
_REFUSING = "it was told to refuse"


class Gate:
    """A port, and what becomes of those who connect to it."""

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
        """Give the port up."""
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
    """A route of one client to one node, with a gate of its own.

    Attributes:
        gate: Where the client connects to.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        """Let clients of this proxy reach *address*."""
        super().__init__()
        self.gate = Gate(lambda client: self.carry(client, address))

    async def refuse(self) -> None:
        """Refuse what is to be opened, and reset what is open."""
        await self.gate.shut(_REFUSING)
        await self.reset()

    @override
    async def heal(self) -> None:
        self.gate.open(_REFUSING)
        await super().heal()

    async def close(self) -> None:
        """Be gone, with all connections."""
        await self.gate.close()
        await self.reset()
