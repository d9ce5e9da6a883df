"""Three runners, each with its web server, and the ways in which their leader comes to its end."""

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, NamedTuple, Self, TypeVar

import psutil

from benchmarks.balancer import web_server
from benchmarks.balancer.haproxy import Ports, free_port
from benchmarks.processes import Child
from kip30 import OutcomeUnknownError, PluginLocator, UnavailableError
from kip30.driver.records import Version, parse_version
from kip30.operations import step_down_leader
from kip30_conformance.clients.process_stop import ProcessStop

T = TypeVar("T")

SERVICE = "reports"
HOSTS = {"n1": "127.0.0.1", "n2": "127.0.0.2", "n3": "127.0.0.3"}
"""The machines, by the ids of their candidates. All addresses are of this one."""
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.02


class Answer(NamedTuple):
    """A request that has reached a web server.

    Attributes:
        epoch: The term that the web server was started for.
        status: 200 if its write was accepted.
        version: That of the write; None: it was not accepted.
        arrived: When the request arrived, in seconds since 1970.
    """

    epoch: int
    status: int
    version: Version | None
    arrived: float


class Term(NamedTuple):
    """A leader, as its runner answers probes."""

    epoch: int
    candidate: str
    since: float


class Runner:
    """A runner, with what its web servers print."""

    def __init__(self, candidate: str, ports: Ports, settings: Mapping[str, str]) -> None:
        chosen = [f"{key}={value}" for key, value in settings.items()]
        host = HOSTS[candidate]
        command = [sys.executable, web_server.__file__, host, str(ports.web), *chosen]
        listen = ("--listen", f"{host}:{ports.health}")
        words = ("run", "--service", SERVICE, "--id", candidate, *listen)
        options = (f"--set={one}" for one in chosen)
        self.answers: list[Answer] = []
        self.ready: dict[int, float] = {}
        self.said: list[str] = []
        self._health = (host, ports.health)
        self._process = Child([sys.executable, "-m", "kip30", *words, *options, "--", *command])
        self.pid = self._process.pid
        self._readers = [
            threading.Thread(target=one, daemon=True) for one in (self._read, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def kill(self) -> None:
        """Kill it, and wait until its web server has ended, too."""
        self.end(signal.SIGKILL)

    def end(self, number: int) -> None:
        """Send it the signal *number*, and wait until it and its web server have ended."""
        os.kill(self.pid, number)
        for reader in self._readers:
            reader.join(_PATIENCE_SECONDS)
            assert not reader.is_alive(), f"the runner did not end: {self.said[-3:]}"
        self._process.end()

    def processes(self) -> list[psutil.Process]:
        """Return its processes: the runner, and all below it."""
        runner = psutil.Process(self.pid)
        return [runner, *runner.children(recursive=True)]

    def told(self) -> Mapping[str, Any]:
        """Return what it answers probes about its candidate; nothing if it does not answer."""
        connection = http.client.HTTPConnection(*self._health, timeout=1.0)
        with closing(connection):
            try:
                connection.request("GET", "/service")
                found: dict[str, Any] = json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException, ValueError):
                return {}
        return found

    def _read(self) -> None:
        while (line := self._process.out.get()) is not None:
            word, epoch, *rest = line.text.split()
            if word == "ready":
                self.ready[int(epoch)] = float(rest[0])
                continue
            status, version, arrived = rest
            written = None if version == "-" else parse_version(version)
            self.answers.append(Answer(int(epoch), int(status), written, float(arrived)))

    def _read_errors(self) -> None:
        while (line := self._process.err.get()) is not None:
            self.said.append(line.text)


class Machines:
    """The runners. Leaving the ``with`` block kills them.

    Attributes:
        ports: Those of each machine.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.ports = Ports(free_port(), free_port())
        self._settings = settings
        self._operator = PluginLocator()
        self._stop_in_no_write = ProcessStop(settings)
        self._former: list[Runner] = []
        self._runners: dict[str, Runner] = {}

    def __enter__(self) -> Self:
        self._operator.startup(dict(self._settings))
        for one in HOSTS:
            self._start(one)
        return self

    def __exit__(self, *_: object) -> None:
        for runner in self._runners.values():
            runner.kill()
        self._operator.close()

    def answers(self) -> Iterator[Answer]:
        """Yield the requests that have reached a web server, in no order."""
        for runner in (*self._former, *self._runners.values()):
            yield from runner.answers

    def ready(self) -> Mapping[int, float]:
        """Return when the web server of each term began to listen."""
        found = dict[int, float]()
        for runner in (*self._former, *self._runners.values()):
            found |= runner.ready
        return found

    def settled(self) -> Term:
        """Wait until one leads, its web server answers, and all others wait; return its term."""
        return _eventually(self._settled, "one leads and the others wait")

    def next_term(self, former: Term) -> Term:
        """Wait until the leader of a later term than *former* serves, and return that term."""
        return _eventually(lambda: self._served_after(former), "another one leads and serves")

    def go_on(self, candidate: str) -> None:
        """Let a machine go on that was stopped."""
        for process in self._runners[candidate].processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def said(self) -> str:
        """Return what the runners have said last, as evidence."""
        return "\n".join(f"{name}: {one.said[-5:]}" for name, one in self._runners.items())

    def _settled(self) -> Term | None:
        told = {name: runner.told() for name, runner in self._runners.items()}
        roles = sorted(str(one.get("role")) for one in told.values())
        if roles != ["leader", "replica", "replica"]:
            return None
        (term,) = _terms(told)
        return term if self._serves(term) else None

    def _served_after(self, former: Term) -> Term | None:
        told = {name: runner.told() for name, runner in self._runners.items()}
        later = (one for one in _terms(told) if one.epoch > former.epoch and self._serves(one))
        return next(later, None)

    def _serves(self, term: Term) -> bool:
        """Return whether the last answer of its web server was one with 200."""
        last = self._runners[term.candidate].answers[-1:]
        return any((one.epoch, one.status) == (term.epoch, 200) for one in last)

    def _start(self, candidate: str) -> None:
        self._runners[candidate] = Runner(candidate, self.ports, self._settings)

    def _replace(self, candidate: str, number: int) -> None:
        runner = self._runners[candidate]
        runner.end(number)
        self._former.append(runner)
        self._start(candidate)

    def kill(self, leader: str) -> None:
        self._replace(leader, signal.SIGKILL)

    def terminate(self, leader: str) -> None:
        self._replace(leader, signal.SIGTERM)

    def step_down(self, _leader: str) -> None:
        step_down_leader(self._operator, SERVICE)

    def hand_over(self, leader: str) -> None:
        successor = next(one for one in HOSTS if one != leader)
        step_down_leader(self._operator, SERVICE, successor=successor)

    def stop(self, leader: str) -> None:
        self._stop_in_no_write.stop(self._runners[leader].pid)

    def freeze(self, leader: str) -> None:
        """Stop the runner and all below it, as if the machine stood still, but in no write.

        A write of the embedded store keeps the others out.
        """
        processes = self._runners[leader].processes()
        while True:
            for process in processes:
                process.suspend()
            try:
                self._operator.storage().set("probe", "")
            except (UnavailableError, OutcomeUnknownError):
                self.go_on(leader)
            else:
                return


def _terms(told: Mapping[str, Mapping[str, Any]]) -> list[Term]:
    return [
        Term(one["epoch"], name, one["since"])
        for name, one in told.items()
        if one.get("role") == "leader"
    ]


def _eventually(find: Callable[[], T | None], what: str) -> T:
    until = time.monotonic() + _PATIENCE_SECONDS
    while (found := find()) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"not in {_PATIENCE_SECONDS:g} s: {what}")
        time.sleep(_LOOK_SECONDS)
    return found


CAUSES: Mapping[str, Callable[[Machines, str], None]] = {
    "kill -9": Machines.kill,
    "SIGTERM": Machines.terminate,
    "step-down": Machines.step_down,
    "hand-over": Machines.hand_over,
    "SIGSTOP": Machines.stop,
    "freeze": Machines.freeze,
}
"""How a leader comes to its end."""
