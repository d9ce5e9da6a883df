"""One TCP connection through a proxy, and its end."""

import asyncio
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from kip30_conformance.servers.round_trips import Turns
from kip30_conformance.servers.traffic_control import Lane, Traffic

_AT_ONCE = struct.pack("ii", 1, 0)
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The start of a connection.

    Attributes:
        masquerade: Texts that are replaced in the client's first bytes.
        patience_seconds: How long to wait for a listening server. A server may retry after a
            refusal, but react worse to a connection that is accepted and then reset.
    """

    masquerade: Mapping[str, str] = field(default_factory=dict[str, str])
    patience_seconds: float = 0.0


class ProxiedConnection:
    """Carries bytes between a client and a server under the conditions of their route.

    Attributes:
        is_broken: Whether bytes were dropped. After the fault it can only be reset, because the
            dropped bytes are not sent again, as TCP would.
    """

    def __init__(
        self,
        client: socket.socket,
        traffic: Traffic,
        address: tuple[str, int],
        greeting: Greeting,
    ) -> None:
        """Prepare to connect *client* to *address*."""
        self.is_broken = False
        self._client = client
        self._server = _unconnected()
        self._traffic = traffic
        self._address = address
        self._patience = greeting.patience_seconds
        self._masquerade: Mapping[str, str] = greeting.masquerade
        self._turns = Turns()

    async def run(self) -> None:
        """Carry until both sides have ended; reset both if one does or if this is cancelled."""
        clean = False
        self._traffic.connections += 1
        try:
            await self._connect()
            await self._carry()
            clean = True
        except* OSError:
            pass
        finally:
            self._end(clean=clean)

    async def _connect(self) -> None:
        if self._traffic.to_server.dropping:
            self.is_broken = True
            while True:
                await self._next(self._client, self._traffic.to_server)
        await self._reach()
        for one in (self._client, self._server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while True:
            try:
                return await loop.sock_connect(self._server, self._address)
            except ConnectionRefusedError:
                if loop.time() >= until:
                    raise
            self._server.close()
            self._server = _unconnected()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _carry(self) -> None:
        traffic = self._traffic
        async with asyncio.TaskGroup() as pumps:
            pumps.create_task(self._pump(self._client, self._server, traffic.to_server))
            pumps.create_task(self._pump(self._server, self._client, traffic.to_client))

    async def _pump(self, source: socket.socket, sink: socket.socket, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        while burst := await self._next(source, lane):
            if lane.truncating:
                lane.tally.forwarded += len(burst) // 2
                await loop.sock_sendall(sink, burst[: len(burst) // 2])
                raise ConnectionAbortedError
            await loop.sock_sendall(sink, self._disguised(burst, lane))
            self._count(burst, lane)
        sink.shutdown(socket.SHUT_WR)

    async def _next(self, source: socket.socket, lane: Lane) -> bytes:
        """Return the next bytes that are not dropped; where all are, an end is dropped as well."""
        while True:
            burst = await self._received(source, lane)
            await lane.admit(burst)
            if not lane.dropping:
                return burst
            self.is_broken = True
            lane.tally.dropped += len(burst)
            if not burst:
                await asyncio.Event().wait()

    async def _received(self, source: socket.socket, lane: Lane) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(source, lane.burst_bytes)
        except OSError:
            await lane.admit(b"")
            if lane.dropping:
                return b""
            raise

    def _disguised(self, burst: bytes, lane: Lane) -> bytes:
        if lane is self._traffic.to_server:
            for own, seen in self._masquerade.items():
                burst = burst.replace(own.encode(), seen.encode())
            self._masquerade = {}
        return burst

    def _count(self, burst: bytes, lane: Lane) -> None:
        lane.tally.forwarded += len(burst)
        if lane is self._traffic.to_server:
            self._turns.ask(burst)
        else:
            self._traffic.round_trips += self._turns.answer(burst)

    def _end(self, *, clean: bool) -> None:
        for one in (self._client, self._server):
            if not clean:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            one.close()
        self._traffic.resets += not clean


def _unconnected() -> socket.socket:
    made = socket.socket()
    made.settimeout(0)
    return made
