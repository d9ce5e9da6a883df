"""A peer in a process of the simulation, which is stopped and killed as a real one is."""

import json
import queue
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from kip30 import UnsupportedError
from kip30.config import Written
from kip30_conformance.clients.peer import Peer, PeerError
from kip30_conformance.clients.peer_main import serve
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.threads import SimulatedQueue

_REAL = frozenset({"shift_wall_clock", "share_lease", "close_on_signals"})
"""Verbs for which a process of the simulation has no part of its own."""

_FIRST_PID = 10_000_000
"""More than any real one: what a killed peer leaves behind notices that this is not its process."""

_ANSWER_SECONDS = 30.0


class SimulatedPeer(Peer):
    """A client of the store in a process of the running simulation, on the same machine."""

    def __init__(self, properties: Mapping[str, Written]) -> None:
        """Start it, and wait until its locator is open."""
        present = simulation()
        pid = _FIRST_PID + present.next_number()
        self._simulated = SimulatedProcess(present, f"peer-{pid}", booted_at=0.0, pid=pid)
        self._requests: SimulatedQueue = SimulatedQueue()
        self._answers: SimulatedQueue = SimulatedQueue()
        self._thread = present.spawn(
            self._simulated,
            "main",
            lambda: serve(iter(self._requests.get, None), self._answers.put),
        )
        self.call("startup", properties={key: str(value) for key, value in properties.items()})

    @property
    @override
    def pid(self) -> int:
        return self._simulated.pid

    @override
    def send(self, verb: str, **arguments: Any) -> None:
        if verb in _REAL:
            raise UnsupportedError(f"a process of a simulation does not {verb}")
        self._requests.put(json.dumps({"verb": verb, **arguments}))

    @override
    def _line(self) -> bytes:
        try:
            answer: str = self._answers.get(timeout=_ANSWER_SECONDS)
        except queue.Empty:
            kind = "Dead" if self.has_ended() else "NoAnswer"
            raise PeerError(kind, f"peer {self.pid} does not answer") from None
        return answer.encode()

    @override
    def stop(self) -> None:
        self._simulated.is_paused = True

    @override
    def resume(self) -> None:
        self._simulated.is_paused = False

    @override
    def has_stopped(self) -> bool:
        raise UnsupportedError("a process of a simulation does not stop by itself")

    @override
    def has_ended(self) -> bool:
        return self._simulated.is_dead or self._thread.is_done

    @override
    def ended_by(self, number: int) -> int:
        raise UnsupportedError("a process of a simulation receives no signals")

    @override
    def kill(self) -> None:
        simulation().kill(self._simulated)

    @override
    def end(self) -> None:
        self.kill()
