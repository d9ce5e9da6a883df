"""A real HAProxy in front of web servers, and when it has found which of them is up."""

import re
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.processes import Child

PROGRAM = "haproxy"
_CONFIGURATION = """
global
    maxconn 100
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 30s
frontend web
    bind 127.0.0.1:{port}
    default_backend reports
backend reports{checks}
    default-server inter {interval}ms fall 1 rise 1 on-marked-down shutdown-sessions
"""
_OF_LEADER = """
    option httpchk GET /leader
    http-check expect status 200"""
_OF_LEADER_AND_PROGRAM = """
    option httpchk
    http-check connect port {health}
    http-check send meth GET uri /leader
    http-check expect status 200
    http-check connect
    option redispatch 1"""
_STATE = re.compile(r"Server reports/(\S+) is (UP|DOWN)\b")


class Ports(NamedTuple):
    """Where each machine serves requests, and where its runner answers checks."""

    web: int
    health: int


class Checks(NamedTuple):
    """How HAProxy checks a server.

    Attributes:
        seconds: The interval between two checks.
        of_program: Whether the program must listen, besides that its runner leads. A request that
            is refused is not repeated at the same server then.
    """

    seconds: float = 1.0
    of_program: bool = False


OF_LEADER = Checks()
"""As in docs/health.md."""


class StateChange(NamedTuple):
    """HAProxy has found that a server is up, or down.

    Attributes:
        server: Its name.
        is_up: Which of the two.
        at: When, in seconds since 1970.
    """

    server: str
    is_up: bool
    at: float


class Balancer:
    """A running HAProxy. Leaving the ``with`` block kills it.

    Attributes:
        port: Where it listens for requests.
        changes: What it has found of servers, in order.
    """

    def __init__(
        self, folder: Path, hosts: Mapping[str, str], ports: Ports, checks: Checks
    ) -> None:
        """Run it with a configuration in *folder*, and a server on each of *hosts*, by name."""
        self.port = free_port()
        self.changes: list[StateChange] = []
        text = _CONFIGURATION.format(
            port=self.port,
            checks=(_OF_LEADER_AND_PROGRAM if checks.of_program else _OF_LEADER).format(
                health=ports.health
            ),
            interval=round(checks.seconds * 1000),
        )
        health = "" if checks.of_program else f" port {ports.health}"
        for name, host in hosts.items():
            text += f"    server {name} {host}:{ports.web} check{health}\n"
        file = folder / "haproxy.cfg"
        file.write_text(text)
        self._process = Child([PROGRAM, "-db", "-f", str(file)])
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()
        self._reader.join()

    def _read(self) -> None:
        offset = time.time() - time.monotonic()
        while (line := self._process.err.get()) is not None:
            change = state_change(line.text, line.arrived / 1e9 + offset)
            if change is not None:
                self.changes.append(change)


def state_change(text: str, at: float) -> StateChange | None:
    """Return what a line of HAProxy says of a server; None: it says something else."""
    found = _STATE.search(text)
    return None if found is None else StateChange(found[1], found[2] == "UP", at)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
