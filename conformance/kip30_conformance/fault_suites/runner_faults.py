"""Guarantees of `kip30 run` when the runner, its guard or the store fails."""

import signal
from collections.abc import Callable
from operator import le

import pytest

from kip30_conformance.clients.run_processes import SERVICE, TREE, Arena, Runner
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import Freeze, supported
from kip30_conformance.suites.run_command import RunnerSuite

_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(900))
_ROUNDS = [4, pytest.param(100, marks=_HEAVY)]
_ROUNDS_OF_GUARDS = [4, pytest.param(12, marks=_HEAVY)]
"""A runner pauses after each guard that is killed, and each time twice as long."""


@pytest.mark.fault
class RunnerFaultTests(RunnerSuite):
    """No two commands run at once when runners are killed or stopped, and the next one follows."""

    @pytest.mark.parametrize("rounds", _ROUNDS)
    def test_W03_runner_killed(self, arena: Arena, evidence: Evidence, rounds: int) -> None:
        """A killed runner's command is gone, with all descendants, before the next one begins."""

        def strike(runner: Runner) -> None:
            runner.end()
            evidence.saw("dead runner", runner.pid)
            arena.start(*arena.ticker("tree"))

        _inject_repeatedly(arena, strike, rounds)

    @pytest.mark.parametrize("rounds", _ROUNDS_OF_GUARDS)
    def test_W04_guard_killed(self, arena: Arena, evidence: Evidence, rounds: int) -> None:
        """A killed guard's command and descendants are gone before the next; its runner waits."""

        def strike(runner: Runner) -> None:
            evidence.saw("dead guard", runner.kill_guard())

        _inject_repeatedly(arena, strike, rounds)

    def test_W05_runner_stopped(self, arena: Arena, harness: Harness, evidence: Evidence) -> None:
        """A stopped runner's command dies before its lease can end; resumed, the runner waits."""
        stopped = arena.start(*arena.ticker("tree"))
        epoch = arena.await_term(processes=TREE)[0].epoch
        successor = arena.start(*arena.ticker("tree"))
        stopped.send(signal.SIGSTOP)
        evidence.saw("stopped runner", stopped.pid)
        second = arena.await_term(epoch)[0].epoch
        throughout(lambda: max(arena.ticks()).epoch == second, seconds=2 * harness.session_seconds)
        stopped.send(signal.SIGCONT)
        eventually(
            lambda: stopped.said.count("waiting to lead") == 2,
            what="who was stopped says that it waits again",
        )
        successor.end()
        assert arena.runner_of(arena.await_term(second)[0]) is stopped
        arena.expect_no_overlap()

    def test_W06_store_frozen(
        self, arena: Arena, harness: Harness, freeze: Freeze, evidence: Evidence
    ) -> None:
        """If the store does not answer the leader, its command is signalled, and killed in time.

        When the store answers again there is a next term.
        """
        for _ in range(2):
            arena.start(*arena.ticker("stubborn", "tree"))
        epoch = arena.await_term(processes=TREE)[0].epoch
        frozen_at = max(arena.ticks()).at
        with freeze():
            eventually(
                lambda: arena.is_silent(harness.session_seconds / 2), what="the command is silent"
            )
            evidence.saw("end of the term", max(arena.ticks()).at - frozen_at)
        term = arena.term(epoch)
        assert max(term).at < frozen_at + harness.session_seconds
        assert "SIGTERM" in [tick.what for tick in term]
        arena.await_term(epoch)
        arena.expect_no_overlap()

    @pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=_HEAVY)])
    def test_W12_no_leak(
        self, arena: Arena, harness: Harness, root: str, evidence: Evidence, rounds: int
    ) -> None:
        """However often a runner loses its term and gains another, it holds no more than before."""
        runner = arena.start(*arena.ticker("tree"))
        epoch = first = arena.await_term(processes=TREE)[0].epoch
        descriptors, threads = runner.holds()
        for nth in range(rounds):
            supported(harness.delete_leader, root, SERVICE)
            epoch = arena.await_term(epoch, processes=TREE)[0].epoch
            if nth == 0:
                # Threads that only the end of a term takes begin with the first one that ends.
                held = runner.holds()
                descriptors, threads = max(descriptors, held[0]), max(threads, held[1])
        with harness.started(root) as client:
            kept = client.backend.limits.idle_descriptors
        allowed = (descriptors + kept, threads)
        eventually(
            lambda: all(map(le, runner.holds(), allowed)),
            what=f"no more held than {allowed} descriptors and threads; once {runner.holds()}",
        )
        arena.expect_no_overlap()
        evidence.saw("terms lost", epoch - first)

    def test_W17_runner_killed_in_the_grace(self, arena: Arena, evidence: Evidence) -> None:
        """A runner that is killed in the grace does not shorten it, and no commands overlap."""
        runner = arena.start("sh", "-c", '"$0" "$@" & wait', *arena.ticker("slow", "tree"))
        term = arena.await_term(processes=TREE)
        arena.start(*arena.ticker())
        runner.send(signal.SIGTERM)
        eventually(lambda: arena.noted("SIGTERM"), what="the command notes the signal")
        runner.end()
        evidence.saw("dead runner", runner.pid)
        arena.await_term(term[0].epoch)
        assert arena.noted("clean") == {tick.pid for tick in term}
        arena.expect_no_overlap()


def _inject_repeatedly(arena: Arena, strike: Callable[[Runner], None], rounds: int) -> None:
    """Let two runners compete, and strike the leader, a number of times."""
    for _ in range(2):
        arena.start(*arena.ticker("tree"))
    epoch = 0
    for _ in range(rounds):
        term = arena.await_term(epoch, processes=TREE)
        epoch = term[0].epoch
        strike(arena.runner_of(term[0]))
    arena.await_term(epoch, processes=TREE)
    arena.expect_no_overlap()
