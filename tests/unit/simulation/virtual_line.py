"""The line store in virtual time: its server answers as an event, and no socket blocks.

A server in another process has the real clock, and a thread that waits for a socket stops all
simulated ones. So the requests of `linestore.connections` go to a server of the same simulation.
All else is the backend as it is.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary, finalize

import linestore.backend
from linestore.connections import Connections
from linestore.errors import lost, refused
from linestore.server import RefusedError, Store
from typing_extensions import override

from kip30.config import Address
from kip30.driver.kit.gate import CLOSED
from kip30.errors import ClosedError
from kip30_conformance.simulation.present import clock, running_thread, simulation
from kip30_conformance.simulation.scheduler import Simulation

_POLL_SECONDS = 0.05

_servers: WeakKeyDictionary[Simulation, Store] = WeakKeyDictionary()


def _server_of(running: Simulation) -> Store:
    """Return the only server of a simulation, whose file is closed when that is collected."""
    if running not in _servers:
        server = _servers[running] = Store(Path(os.devnull))
        finalize(running, server._log.close)
    return _servers[running]


class VirtualConnections(Connections):
    """The way to the server of the running simulation."""

    @override
    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._server = _server_of(simulation())
        self._is_shut = False

    @override
    def ask(
        self, operation: str, until: float, *, writes: bool = False, **fields: Any
    ) -> dict[str, Any]:
        if self._is_shut:
            raise ClosedError(CLOSED)
        try:
            if operation == "wait":
                return self._wait(until=until, **fields)
            return self._served(operation, fields)
        except RefusedError as error:
            raise refused(str(error), writes=writes) from error

    @override
    def close(self) -> None:
        super().close()
        self._is_shut = True

    def _wait(self, *, until: float, after: int, ident: str, seconds: float) -> dict[str, Any]:
        end = min(until, clock() + seconds)
        while clock() < end:
            found = self._served("get", {"keys": []})
            if found["revision"] > after or found["store"] != ident:
                return found
            simulation().park(_POLL_SECONDS)
            if self._is_shut:
                raise lost(OSError("shut"), self.server, writes=False, closed=True)
        return self._served("get", {"keys": []})

    def _served(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the server, which does all of a request at one moment."""
        thread, outcome = running_thread(), list[dict[str, Any] | RefusedError]()

        def serve() -> None:
            server = self._server
            server.expire()
            try:
                answer = getattr(server, operation)(**fields)
                outcome.append({**answer, "store": server.ident, "revision": server.revision})
            except RefusedError as error:
                outcome.append(error)
            simulation().unpark(thread)

        simulation().at(simulation().now, serve)
        while not outcome:
            simulation().park()
        if isinstance(outcome[0], RefusedError):
            raise outcome[0]
        return outcome[0]


@contextmanager
def in_virtual_time() -> Generator[None]:
    """Let line stores that are opened in the block reach the server of their simulation."""
    with patch.object(linestore.backend, "Connections", VirtualConnections):
        yield
