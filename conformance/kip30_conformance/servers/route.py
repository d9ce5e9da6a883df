"""A way from clients to a node: its connections, and the verbs that make trouble on it."""

import asyncio
import socket
from collections.abc import Iterable

from kip30_conformance.servers.connection import Connection, Greeting
from kip30_conformance.servers.traffic import Traffic

_PLAIN = Greeting()


class Route:
    """All that goes one way; every verb is about what is open and what will be opened."""

    def __init__(self) -> None:
        """Begin without trouble."""
        self.traffic = Traffic()
        self._tasks: dict[Connection, asyncio.Task[None]] = {}

    def carry(
        self,
        client: socket.socket,
        address: tuple[str, int],
        greeting: Greeting = _PLAIN,
    ) -> None:
        """Connect *client* to *address* from now on."""
        connection = Connection(client, self.traffic, address, greeting)
        task = asyncio.ensure_future(connection.run())
        self._tasks[connection] = task
        task.add_done_callback(lambda _: self._tasks.pop(connection))

    async def cut(self) -> None:
        """Lose everything both ways."""
        for lane in self.traffic.lanes():
            lane.dropping = True

    async def swallow_answers(self) -> None:
        """Lose everything toward the client."""
        self.traffic.to_client.dropping = True

    async def half_open(self, toward: str) -> None:
        """Hold everything *toward* one side."""
        for lane in self.traffic.lanes(toward):
            lane.hold()

    async def delay(self, seconds: float, jitter: float) -> None:
        """Be slow both ways."""
        for lane in self.traffic.lanes():
            lane.delay(seconds, jitter)

    async def bandwidth(self, bytes_per_second: int) -> None:
        """Be narrow both ways."""
        for lane in self.traffic.lanes():
            lane.narrow(bytes_per_second)

    async def truncate(self, toward: str) -> None:
        """Let half of what comes next *toward* one side through, and reset its connection."""
        for lane in self.traffic.lanes(toward):
            lane.truncating = True

    async def reset(self) -> None:
        """Reset what is open."""
        await self._reset(list(self._tasks))

    async def heal(self) -> None:
        """End all trouble; what has lost something is reset."""
        for lane in self.traffic.lanes():
            lane.clear()
        await self._reset([one for one in self._tasks if one.is_broken])

    async def _reset(self, connections: Iterable[Connection]) -> None:
        tasks = [self._tasks[one] for one in connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
