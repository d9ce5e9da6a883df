"""A route from clients to a node: its connections, and the verbs that inject faults on it."""

import asyncio
import socket
from collections.abc import Iterable

from kip30_conformance.servers.proxied_connection import Greeting, ProxiedConnection
from kip30_conformance.servers.traffic_control import Traffic

_PLAIN = Greeting()


class Route:
    """All traffic of one route; every verb applies to open and to later connections."""

    def __init__(self) -> None:
        """Start without faults."""
        self.traffic = Traffic()
        self._tasks: dict[ProxiedConnection, asyncio.Task[None]] = {}

    def carry(
        self,
        client: socket.socket,
        address: tuple[str, int],
        greeting: Greeting = _PLAIN,
    ) -> None:
        """Connect *client* to *address* from now on."""
        connection = ProxiedConnection(client, self.traffic, address, greeting)
        task = asyncio.ensure_future(connection.run())
        self._tasks[connection] = task
        task.add_done_callback(lambda _: self._tasks.pop(connection))

    async def cut(self) -> None:
        """Drop everything both ways."""
        for lane in self.traffic.lanes():
            lane.dropping = True

    async def swallow_answers(self) -> None:
        """Drop everything toward the client."""
        self.traffic.to_client.dropping = True

    async def half_open(self, toward: str) -> None:
        """Hold everything *toward* one side."""
        for lane in self.traffic.lanes(toward):
            lane.hold()

    async def delay(self, seconds: float, jitter: float) -> None:
        """Delay both ways."""
        for lane in self.traffic.lanes():
            lane.delay(seconds, jitter)

    async def bandwidth(self, bytes_per_second: int) -> None:
        """Limit the bandwidth both ways."""
        for lane in self.traffic.lanes():
            lane.narrow(bytes_per_second)

    async def truncate(self, toward: str) -> None:
        """Let half of the next bytes *toward* one side through, and reset their connection."""
        for lane in self.traffic.lanes(toward):
            lane.truncating = True

    async def reset(self) -> None:
        """Reset open connections."""
        await self._reset(list(self._tasks))

    async def heal(self) -> None:
        """End all faults; connections that lost bytes are reset."""
        for lane in self.traffic.lanes():
            lane.clear()
        await self._reset([one for one in self._tasks if one.is_broken])

    async def _reset(self, connections: Iterable[ProxiedConnection]) -> None:
        tasks = [self._tasks[one] for one in connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
