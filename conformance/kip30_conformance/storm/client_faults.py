"""Faults of a client itself: its process, or its session."""

from random import Random

from typing_extensions import override

from kip30_conformance.storm.clients import ClientProcess
from kip30_conformance.storm.faults import Fault, Scene, state_of


class _ClientFault(Fault):
    """A fault of some client."""

    def __init__(self, scene: Scene, chance: Random) -> None:
        """Hit a client by chance."""
        super().__init__(scene, chance)
        self.client: ClientProcess = chance.choice(scene.clients.processes)


class ClientKilled(_ClientFault):
    """A client is killed with -9; in the end a new one takes its place, by the same name."""

    @override
    def begin(self) -> None:
        self.target = self.client.process
        self.client.kill()

    @override
    def end(self) -> None:
        old = self.client.pid
        self.client.start()
        self.evidence = f"pid {old} became {self.client.pid}"


class ClientStopped(_ClientFault):
    """A client is stopped (SIGSTOP)."""

    @override
    def begin(self) -> None:
        self.target = self.client.process
        self.client.stop()

    @override
    def end(self) -> None:
        if state_of(self.client.pid) in ("T", "t"):
            self.evidence = f"stopped: pid {self.client.pid}"
        self.client.resume()


class Expired(_ClientFault):
    """The session of a client is ended in the store; its journal shows whether it was."""

    _before = 0

    @override
    def begin(self) -> None:
        self.target = self.client.process
        self._before = self._count()
        self.client.tell("expire")

    @override
    def end(self) -> None:
        if self._count() > self._before:
            rows = self.client.journal()
            lost = sum(row["what"] == "session lost" for row in rows)
            self.evidence = f"expired, {lost} sessions lost so far"

    def _count(self) -> int:
        """Return how often the store has acknowledged the end of a session of this process."""
        rows = self.client.journal()
        return sum(row["what"] == "expired" and not row["error"] for row in rows)
