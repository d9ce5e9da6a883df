"""HAProxy in front of three runners: requests reach the leader, and no former leader writes."""

import http.client
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Self

import pytest

from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import time_scale
from tests.unit.haproxy import free_port, haproxy

from .shell import PATIENCE_SECONDS, Shell, eventually
from .test_run_listen import Listening, listening

log = logging.getLogger(__name__)

FAILOVERS = 100
CANDIDATES = ("n1", "n2", "n3")
SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from kip30 import FencedError, Kip30Error, PluginLocator
from kip30.driver.records import Fence

fence = Fence(os.environ["KIP30_SERVICE"], int(os.environ["KIP30_EPOCH"]))
storage = PluginLocator().startup(sys.argv[2]).storage()

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            version = storage.set("web/latest", str(fence.epoch), fence=fence)
            status, text = 200, f"{fence.epoch} {version}"
        except FencedError:
            status, text = 409, "another leads"
        except Kip30Error as error:
            status, text = 503, str(error)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""Writes at each request, with the fence of the term that it was started for."""

CONFIGURATION = """
global
    maxconn 100
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 30s
    timeout check 1s
frontend web
    bind 127.0.0.1:{port}
    default_backend reports
backend reports
    option httpchk GET /leader
    http-check expect status 200
    default-server inter 100ms fall 1 rise 1 on-marked-down shutdown-sessions
"""


class Written(NamedTuple):
    """A write that the store has accepted: its place in the order of all writes, and its term."""

    version: tuple[int, ...]
    epoch: int


class Web:
    """A client of the balancer, which asks all the time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = threading.Event()
        self.written: list[Written] = []
        self.statuses: set[int] = set()
        self._thread = threading.Thread(target=self._ask_on)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    @property
    def newest_epoch(self) -> int:
        return self.written[-1].epoch if self.written else 0

    def has_served_after(self, epoch: int) -> bool:
        return self.newest_epoch > epoch

    def _ask_on(self) -> None:
        while not self._ends.wait(0.005):
            with suppress(OSError, http.client.HTTPException):
                self._ask()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, PATIENCE_SECONDS)
        try:
            connection.request("GET", "/")
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        self.statuses.add(response.status)
        if response.status == http.HTTPStatus.OK:
            epoch, version = text.split()
            place = tuple(int(part) for part in version.split("."))
            self.written.append(Written(place, int(epoch)))


class Machines:
    """The three runners, each with the port of its web server."""

    def __init__(self, shell: Shell, stack: ExitStack) -> None:
        self.shell = shell
        self.ports = {one: free_port() for one in CANDIDATES}
        self.health = {one: free_port() for one in CANDIDATES}
        self._stack = stack
        self.runners = {one: self._started(one) for one in CANDIDATES}

    def _started(self, candidate: str) -> Listening:
        words = ("--", sys.executable, "-c", SERVER)
        arguments = (str(self.ports[candidate]), str(self.shell.properties))
        listen = ("--listen", f"127.0.0.1:{self.health[candidate]}")
        runner = listening(self.shell, candidate, *words, *arguments, listen=listen)
        return self._stack.enter_context(runner)

    def leader(self) -> str:
        """Return the candidate that leads, once one does and another one waits."""
        found = list[str]()

        def decided() -> bool:
            leading = [one for one in CANDIDATES if self.status(one, "/leader")]
            waiting = [one for one in CANDIDATES if self.status(one, "/replica")]
            found[:] = leading
            return len(leading) == 1 and bool(waiting)

        eventually(decided)
        return found[0]

    def waiting(self) -> str:
        return next(one for one in CANDIDATES if self.status(one, "/replica"))

    def status(self, candidate: str, path: str) -> bool:
        try:
            return self.runners[candidate].ask(path).status == http.HTTPStatus.OK
        except OSError:
            return False

    def replace(self, candidate: str, number: int) -> None:
        """End a runner by a signal, and start another one on the same machine."""
        process = self.runners[candidate].process
        process.send_signal(number)
        process.wait(PATIENCE_SECONDS * time_scale())
        self.runners[candidate] = self._started(candidate)

    def hand_over(self, _leader: str) -> None:
        self.shell("hand-over", "s", self.waiting(), "--yes")

    def step_down(self, _leader: str) -> None:
        self.shell("step-down", "s", "--yes")

    def terminate(self, leader: str) -> None:
        self.replace(leader, signal.SIGTERM)

    def kill(self, leader: str) -> None:
        self.replace(leader, signal.SIGKILL)

    def stop(self, leader: str) -> None:
        """Stop the runner past its lease, and let it go on."""
        pid, epoch = self.runners[leader].process.pid, self._epoch()
        store = {"plugin.embedded.directory": self.shell.folder / "store"}
        ProcessStop({"plugin.backend": "embedded", **store}).stop(pid)
        eventually(lambda: self._epoch() > epoch)
        os.kill(pid, signal.SIGCONT)

    def _epoch(self) -> int:
        """Return the epoch of the leader; 0 while there is none, which the command reports by 1."""
        (found,) = self.shell.json_of(self.shell("leader", "s", "--json").stdout)
        return int(found["leader"]["epoch"]) if found["leader"] else 0


@contextmanager
def balancing(shell: Shell, machines: Machines) -> Iterator[int]:
    """Run HAProxy, and yield its port."""
    port = free_port()
    servers = [
        f"    server {one} 127.0.0.1:{machines.ports[one]} check port {machines.health[one]}\n"
        for one in CANDIDATES
    ]
    with haproxy(CONFIGURATION.format(port=port) + "".join(servers), shell.folder):
        yield port


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.case("O70")
def test_a_balancer_follows_the_leader_and_no_former_one_writes(shell: Shell) -> None:
    chance = random.Random(7)  # noqa: S311  it repeats itself
    delays = list[float]()
    with ExitStack() as stack:
        machines = Machines(shell, stack)
        kinds: list[Callable[[str], None]] = [
            *(machines.hand_over, machines.step_down, machines.terminate) * 3,
            machines.kill,
            machines.stop,
        ]
        web = stack.enter_context(Web(stack.enter_context(balancing(shell, machines))))
        eventually(lambda: web.newest_epoch > 0)
        for _ in range(FAILOVERS):
            leader, epoch = machines.leader(), web.newest_epoch
            began = time.monotonic()
            chance.choice(kinds)(leader)
            eventually(partial(web.has_served_after, epoch))
            delays.append(time.monotonic() - began)
    writes = sorted(web.written)
    assert all(one.epoch <= next_one.epoch for one, next_one in pairwise(writes))
    assert len({one.epoch for one in writes}) > FAILOVERS
    assert web.statuses <= {200, 409, 502, 503, 504}
    delays.sort()
    log.info("served again after %.2f s, at most %.2f s", delays[FAILOVERS // 2], delays[-1])
