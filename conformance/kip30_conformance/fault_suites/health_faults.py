"""Guarantees of `kip30 run --listen` when runners are killed, stopped or ended."""

import signal
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import pytest

from kip30_conformance.clients.health_probes import LeaderProbes
from kip30_conformance.clients.run_processes import Arena, Runner
from kip30_conformance.evidence import Evidence
from kip30_conformance.suites.run_command import RunnerSuite

_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(900))


@pytest.mark.fault
class HealthFaultTests(RunnerSuite):
    """Of runners that are asked whether they lead, one at most says so."""

    @pytest.fixture
    def probes(self, arena: Arena) -> Iterator[LeaderProbes]:
        """Yield what asks the runners; it is closed when they have ended."""
        with LeaderProbes() as probes:
            yield probes
            arena.close()

    @pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=_HEAVY)])
    def test_O70_leader_by_clock(
        self, arena: Arena, probes: LeaderProbes, evidence: Evidence, rounds: int
    ) -> None:
        """No two runners answer that they lead at one moment, whichever is stopped or killed."""
        for _ in range(2):
            probes.start(arena)
        epoch = 0
        for strike in islice(cycle((_stop, _end, _kill, _end)), rounds):
            led = probes.await_leader(epoch)
            epoch = led.epoch
            strike(arena, probes, arena.runners[led.candidate], epoch)
        last = probes.await_leader(epoch).epoch
        evidence.saw("terms", last >= rounds and last)
        probes.expect_one_leader()


Strike = Callable[[Arena, LeaderProbes, Runner, int], None]


def _stop(_arena: Arena, probes: LeaderProbes, leader: Runner, epoch: int) -> None:
    probes.stop_until(leader, lambda: probes.await_leader(epoch))


def _end(arena: Arena, probes: LeaderProbes, leader: Runner, _epoch: int) -> None:
    leader.send(signal.SIGTERM)
    leader.wait()
    probes.start(arena)


def _kill(arena: Arena, probes: LeaderProbes, leader: Runner, _epoch: int) -> None:
    leader.end()
    probes.start(arena)
