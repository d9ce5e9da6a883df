"""The process that owns an ensemble's servers and proxies: ``python -m`` this module.

It reads requests in JSON lines on its standard input, one at a time, and answers
each on its standard output. When the input ends, or the process that started it, it kills all
servers; when it is itself killed, the kernel does.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kip30_conformance.servers.peer_proxies import PeerProxies
from kip30_conformance.servers.ports import HOST, held
from kip30_conformance.servers.processes import Processes
from kip30_conformance.servers.proxy_listener import UNUSED, Proxy, ProxyPort

_MAX_LINE = 2**20


class _Supervisor:
    """The verbs; each public coroutine is one."""

    def __init__(self) -> None:
        self._processes = Processes()
        self._peers = PeerProxies(self._processes)
        self._links: dict[int, list[Proxy]] = {}
        self._opened = 0
        self._litter: list[str] = []
        self._held: list[socket.socket] = []

    async def launch(
        self, node: int, command: list[str], folder: str, environment: dict[str, str]
    ) -> int:
        pid = self._processes.launch(node, command, Path(folder), environment)
        for proxy_port in self._proxy_ports(node):
            proxy_port.open(UNUSED)
        return pid

    async def kill(self, node: int) -> int:
        pid = self._processes.kill(node)
        for proxy_port in self._proxy_ports(node):
            await proxy_port.shut(UNUSED)
        return pid

    async def stop(self, node: int) -> int:
        return self._processes.stop(node)

    async def resume(self, node: int) -> int:
        return self._processes.resume(node)

    async def status(self, node: int) -> int | None:
        return self._processes.status(node)

    async def hold_ports(self, count: int) -> list[int]:
        """Draw ports for servers, and keep them while no server listens there."""
        drawn = [held() for _ in range(count)]
        self._held += drawn
        return [one.getsockname()[1] for one in drawn]

    async def open_link(self, ports: Sequence[int]) -> dict[str, Any]:
        self._opened += 1
        proxies = self._links[self._opened] = [Proxy((HOST, port)) for port in ports]
        return {"link": self._opened, "ports": [proxy.proxy_port.port for proxy in proxies]}

    async def close_link(self, link: int) -> None:
        for proxy in self._links.pop(link, []):
            await proxy.close()

    async def strike(
        self, link: int, fault: str, nodes: Sequence[int] | None, how: Mapping[str, Any]
    ) -> None:
        proxies = self._links[link]
        for node in range(len(proxies)) if nodes is None else nodes:
            await getattr(proxies[node], fault)(**how)

    async def counted(self, link: int) -> list[dict[str, Any]]:
        return [proxy.traffic.counted() for proxy in self._links[link]]

    async def links(self) -> int:
        return len(self._links)

    async def open_peers(
        self, ports: list[list[int]], *, behind: bool = False, datagrams: bool = False
    ) -> list[list[int]]:
        return self._peers.open(ports, behind=behind, datagrams=datagrams)

    async def disguise(self, masquerade: dict[str, str]) -> None:
        self._peers.disguise(masquerade)

    async def isolate(self, node: int) -> None:
        await self._peers.isolate(node)

    async def separate(self, one: int, other: int) -> None:
        await self._peers.separate(one, other)

    async def heal(self) -> None:
        await self._peers.heal()

    async def peer_counts(self) -> list[dict[str, Any]]:
        return self._peers.counted()

    async def clean_up(self, folder: str) -> None:
        """Remove *folder* at the end."""
        self._litter.append(folder)

    def _proxy_ports(self, node: int) -> list[ProxyPort]:
        """Return all proxy ports before a node, which a dead one must not seem to answer at."""
        return [
            *self._peers.proxy_ports(node),
            *(proxies[node].proxy_port for proxies in self._links.values()),
        ]

    def end(self) -> None:
        self._processes.end()
        for folder in self._litter:
            shutil.rmtree(folder, ignore_errors=True)


async def _serve(parent: int) -> None:
    supervisor = _Supervisor()
    serving = asyncio.ensure_future(_answer_all(supervisor))
    asyncio.get_running_loop().add_reader(parent, serving.cancel)
    try:
        with suppress(asyncio.CancelledError, BrokenPipeError):
            await serving
    finally:
        supervisor.end()


async def _answer_all(supervisor: _Supervisor) -> None:
    requests = asyncio.StreamReader(limit=_MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin
    )
    async for line in requests:
        answer = await _answer(supervisor, json.loads(line))
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


async def _answer(supervisor: _Supervisor, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": await getattr(supervisor, request.pop("verb"))(**request)}
    except Exception as error:  # noqa: BLE001  the caller gets it
        return {"error": type(error).__name__, "text": str(error)}


if __name__ == "__main__":
    asyncio.run(_serve(os.pidfd_open(os.getppid())))
