"""Guarantees of `kip30 coordinate` when the runner, its guard or the store fails."""

import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from kip30.config import Written
from kip30_conformance.clients.coordinate_processes import SharingArena
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.clients.run_processes import Runner
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import Freeze
from kip30_conformance.suites.coordinate_command import ShareSuite

_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(1800))
_ROUNDS = [3, pytest.param(50, marks=_HEAVY)]
_ROUNDS_OF_GUARDS = [3, pytest.param(10, marks=_HEAVY)]
"""A runner pauses after each guard that is killed, and each time twice as long."""
_ROUNDS_OF_EACH = [3, pytest.param(30, marks=_HEAVY)]
"""The same, but each of eight items has pauses of its own."""


@pytest.mark.fault
class ShareFaultTests(ShareSuite):
    """No item is in two running commands under any fault, and all items are taken again."""

    @pytest.mark.parametrize("rounds", _ROUNDS)
    def test_V04_runner_killed(self, arena: SharingArena, evidence: Evidence, rounds: int) -> None:
        """A killed runner's command is gone, with all descendants, before its items run again."""

        def strike(runner: Runner) -> None:
            runner.end()
            evidence.saw("dead runner", runner.pid)
            arena.start(*arena.ticker("tree"))

        _inject_repeatedly(arena, strike, rounds)

    @pytest.mark.parametrize("rounds", _ROUNDS_OF_GUARDS)
    def test_V05_guard_killed(self, arena: SharingArena, evidence: Evidence, rounds: int) -> None:
        """The command is killed together with its guard; with --restart it runs again."""

        def strike(runner: Runner) -> None:
            evidence.saw("dead guard", runner.kill_guard())

        _inject_repeatedly(arena, strike, rounds, "--restart")

    @pytest.mark.parametrize("rounds", _ROUNDS_OF_EACH)
    def test_V14_each_guard_killed(
        self, steady_arena: SharingArena, evidence: Evidence, rounds: int
    ) -> None:
        """A killed guard of one item ends and restarts this item's command, and no other one."""
        arena = steady_arena
        for _ in range(2):
            arena.start(*arena.ticker("tree", "slow-tick"), options=("--each",))
        before = arena.await_even_items(members=2)
        for nth in range(rounds):
            struck = arena.period(before[nth % arena.shards])
            began = time.monotonic()
            pid = next(tick.pid for tick in arena.ticks() if tick.run == struck.run)
            runner = arena.runner_with(struck.member)
            evidence.saw("dead guard", runner.kill_guard_of(pid))
            after = arena.await_next_runs(struck, after=began, members=2)
            restarted = {item for item in after if after[item].run != before[item].run}
            assert restarted == set(struck.items)
            before = after
        arena.expect_no_overlap()

    def test_V06_runner_stopped(
        self, arena: SharingArena, harness: Harness, evidence: Evidence
    ) -> None:
        """A stopped runner's command dies before its share can end; resumed, the runner rejoins."""
        for _ in range(2):
            arena.start(*arena.ticker("tree"))
        shares = arena.await_items(members=2)
        stopped = arena.runner_with(shares[0].member)
        stopped.send(signal.SIGSTOP)
        evidence.saw("stopped runner", stopped.pid)
        arena.await_items(after=arena.now() + harness.session_seconds / 2, members=1)
        stopped.send(signal.SIGCONT)
        arena.await_items(members=2)
        arena.expect_no_overlap()

    def test_V07_store_frozen(
        self, arena: SharingArena, harness: Harness, freeze: Freeze, evidence: Evidence
    ) -> None:
        """If the store does not answer, all commands end in time; later all items run again."""
        for _ in range(2):
            arena.start(*arena.ticker("stubborn", "tree"))
        arena.await_items(members=2)
        frozen_at = arena.now()
        with freeze():
            eventually(
                lambda: arena.is_silent(harness.session_seconds / 2),
                what="the commands are silent",
            )
            evidence.saw("end of the shares", arena.now() - frozen_at)
        assert arena.now() < frozen_at + harness.session_seconds
        arena.await_items(after=arena.now(), members=2)
        arena.expect_no_overlap()

    @pytest.mark.parametrize(
        ("members", "shards", "strikes"),
        [(3, 8, 6), pytest.param(30, 64, None, id="crowd", marks=_HEAVY)],
    )
    def test_V04_any_process_struck(  # noqa: PLR0913, PLR0917  the size is three
        self,
        harness: Harness,
        root: str,
        timeouts: Mapping[str, Written],
        tmp_path: Path,
        evidence: Evidence,
        members: int,
        shards: int,
        strikes: int | None,
    ) -> None:
        """Runners and guards are killed, stopped and ended at random; no item is lost or doubled.

        A runner that ends is replaced; one that is stopped is continued a session later.
        """
        chance = random.Random(30)  # noqa: S311  the same choice in every run
        arena = SharingArena(tmp_path, harness.properties(root, **timeouts), shards=shards)
        with heeded(), closing(arena):
            for _ in range(members):
                arena.start(*arena.ticker("slow-tick"), options=("--restart", "--quiet"))
            arena.await_items(members=members)
            pauses: list[float] = []
            for _ in range(strikes or harness.processes_per_crowd_fault):
                struck = arena.newest()[chance.randrange(shards)]
                began = time.monotonic()
                evidence.saw("struck", _strike_somehow(arena, struck.member, chance, harness))
                next_runs = arena.await_next_runs(struck, after=began)
                last = arena.period(struck).last
                pauses.append(max(next_runs[item].first for item in struck.items) - last)
            arena.expect_no_overlap()
            evidence.saw("median pause", sorted(pauses)[len(pauses) // 2])


def _strike_somehow(
    arena: SharingArena, member: str, chance: random.Random, harness: Harness
) -> str:
    """Kill, stop or end the runner of *member*, or kill its guard; return the action."""
    runner = arena.runner_with(member)
    what = chance.choice(["SIGKILL", "SIGTERM", "SIGSTOP", "guard"])
    if what == "guard":
        runner.kill_guard()
    elif what == "SIGSTOP":
        runner.send(signal.SIGSTOP)
        time.sleep(harness.session_seconds)
        runner.send(signal.SIGCONT)
    else:
        runner.send(signal.Signals[what])
        runner.wait()
        arena.start(*arena.ticker("slow-tick"), options=("--restart", "--quiet"))
    return f"{what} of {runner.pid}"


def _inject_repeatedly(
    arena: SharingArena, strike: Callable[[Runner], None], rounds: int, *options: str
) -> None:
    """Let two runners share the items, and strike one of them, a number of times."""
    for _ in range(2):
        arena.start(*arena.ticker("tree"), options=options)
    arena.await_items(members=2)
    for nth in range(rounds):
        struck = arena.await_items(members=2)[nth % arena.shards]
        began = time.monotonic()
        strike(arena.runner_with(struck.member))
        arena.await_next_runs(struck, after=began, members=2)
    arena.expect_no_overlap()
