"""Runs of the core with faults: all promises are kept, planted bugs are found, runs repeat."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from weakref import ref

import psutil
import pytest

from kip30.history.linearizability import check
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.simulation import safety_promises, simulate
from kip30_conformance.simulation.plan import (
    LEADER,
    RunFault,
    RunFaultKind,
    RunPlan,
    expand,
    expand_with_bans,
    expand_with_operators,
    from_json,
    to_json,
)
from kip30_conformance.simulation.promises import Failure
from kip30_conformance.simulation.schedule import Schedule, run
from kip30_conformance.simulation.shrinking import shrink, smallest

from . import seeds_of_bugs
from .planted_bugs import BUGS, planted
from .seeds_of_bugs import first_broken

pytestmark = pytest.mark.medium

SEEDS_OF_A_TEST = 25
GATE_SEEDS, ALL_SEEDS, DIRECTED_SEEDS = 50, 10_000, 2_000
COMMIT_SEEDS = 50
PLANS = Path(__file__).parent / "plans"
"""Of runs that broke a promise by a fault of the core or of a judge. They must not do it again."""
MEDIAN_FAULTS = 4
"""Most faults that the smallest plans may have, at the median of all bugs."""


def _first_of_commit() -> int:
    """Return the first of the seeds that no other commit has: in time all are tried."""
    words = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(
        words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return 1_000_000 + int(found.stdout.strip()[:12] or "0", 16)


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    simulate.prepare()


@pytest.mark.case("D01")
@pytest.mark.parametrize("first", range(1, GATE_SEEDS, SEEDS_OF_A_TEST))
def test_d01_to_d10_every_promise_is_kept(first: int) -> None:
    _expect_kept(first)


@pytest.mark.large
@pytest.mark.timeout(600)
@pytest.mark.case("D01")
@pytest.mark.parametrize("first", range(GATE_SEEDS + 1, ALL_SEEDS, 100))
def test_d01_to_d10_every_promise_is_kept_on_ten_thousand_seeds(first: int) -> None:
    _expect_kept(first, 100)


@pytest.mark.parametrize("file", sorted(PLANS.iterdir()), ids=lambda file: file.stem)
def test_a_plan_that_has_shown_a_fault_is_run_again(file: Path) -> None:
    assert run(simulate.of_file(file)) == []


@pytest.mark.case("D01")
@pytest.mark.parametrize("offset", range(0, COMMIT_SEEDS, SEEDS_OF_A_TEST))
def test_d01_to_d10_every_promise_is_kept_on_seeds_of_this_commit(offset: int) -> None:
    _expect_kept(_first_of_commit() + offset)


@pytest.mark.case("X08")
def test_x08_directives_are_obeyed() -> None:
    _expect_kept(1, plan_of=expand_with_operators)


@pytest.mark.case("X08")
def test_x08_bans_are_obeyed() -> None:
    _expect_kept(1, plan_of=expand_with_bans)


@pytest.mark.large
@pytest.mark.timeout(600)
@pytest.mark.case("X08")
@pytest.mark.parametrize("first", range(SEEDS_OF_A_TEST + 1, DIRECTED_SEEDS, 100))
def test_x08_directives_are_obeyed_on_two_thousand_seeds(first: int) -> None:
    _expect_kept(first, 100, plan_of=expand_with_operators)


def _expect_kept(
    first: int,
    number: int = SEEDS_OF_A_TEST,
    *,
    plan_of: Callable[[int], RunPlan] = expand,
) -> None:
    plans = map(plan_of, range(first, first + number))
    summary = simulate.simulate(plans, most=1)
    assert [simulate.described(one) for one in summary.broken] == []
    assert summary.runs == number


@pytest.mark.case("D16")
@pytest.mark.parametrize("bug", BUGS)
def test_d16_a_planted_bug_is_found(bug: str) -> None:
    """The gate begins with a seed that has found it."""
    assert first_broken(bug, seeds_of_bugs.read()[bug])


@pytest.mark.large
@pytest.mark.timeout(600)
@pytest.mark.case("D16")
@pytest.mark.parametrize("seed", [1, 201, 401])
@pytest.mark.parametrize("bug", BUGS)
def test_d16_a_planted_bug_is_found_from_any_seed(bug: str, seed: int) -> None:
    assert first_broken(bug, seed)


@pytest.mark.case("D16")
def test_d16_calls_that_cannot_be_judged_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety_promises, "check", partial(check, budget=0))
    (failure,) = run(expand(1))
    assert failure.promise == "D09"
    assert "undecided" in failure.text


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.case("D16")
def test_d16_plans_become_small() -> None:
    sizes = list[int]()
    for bug in BUGS:
        _, plan, promise = first_broken(bug, 1)
        with planted(bug):
            sizes.append(len(shrink(plan, promise).faults))
    assert median(sizes) <= MEDIAN_FAULTS


def test_nothing_stays_in_a_plan_that_fails_without_it() -> None:
    plans = [expand(seed) for seed in range(1, 40)]
    plan = next(one for one in plans if one.has_items and one.has_locks and len(one.faults) > 4)
    needed = plan.faults[2]
    left = smallest(plan, lambda one: needed in one.faults and one.has_locks)
    assert left.faults == (needed,)
    assert (left.has_locks, left.has_items) == (True, False)
    assert (left.lost_requests, left.lost_answers, left.late_messages) == (0.0, 0.0, 0.0)
    assert (left.lost_notifications, left.repeated_notifications, left.interruptions) == (0, 0, 0)


@pytest.mark.case("D17")
@pytest.mark.parametrize(
    "bug", ["no margin", pytest.param("members return with old data", marks=pytest.mark.large)]
)
def test_d17_a_plan_fails_in_the_same_way_when_it_is_read_again(bug: str) -> None:
    _, plan, promise = first_broken(bug, 1)
    with planted(bug):
        smaller = shrink(plan, promise)
        assert len(smaller.faults) <= len(plan.faults)
        for one in (plan, smaller):
            assert run(from_json(to_json(one))) == run(one) != []
    assert run(smaller) == []


_TRACES = """
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.simulation import simulate
from kip30_conformance.simulation.plan import expand
from kip30_conformance.simulation.schedule import Schedule
simulate.prepare()
for seed in (*{before}, 1, 2, 8, 12):
    schedule = Schedule(expand(seed))
    schedule.run()
    if seed not in {before}:
        print(seed, schedule.simulation.trace)
"""


@pytest.mark.case("D15")
def test_d15_a_run_is_the_same_in_other_processes_and_after_other_runs() -> None:
    """Also where futures lie at other addresses."""

    def traces(hash_seed: str, before: list[int]) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        words = [sys.executable, "-c", _TRACES.replace("{before}", repr(before))]
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert traces("1", []) == traces("2", [1000, 1001, 1002]) != ""


def test_a_run_leaves_nothing() -> None:
    run(expand(1))
    before = resources_held()
    schedule = Schedule(expand(2))
    schedule.run()
    found = ref(schedule)
    del schedule
    gc.collect()
    assert found() is None
    expect_no_more_than(before)


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.case("D21")
def test_d21_memory_stays() -> None:
    process = psutil.Process()
    simulate.simulate(simulate.of_seeds(1, 100))
    gc.collect()
    before = process.memory_info().rss
    simulate.simulate(simulate.of_seeds(101, 1_100))
    gc.collect()
    assert process.memory_info().rss < before + 20 * 2**20


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"faults": [["NO", 1, 1, 1]]}'])
def test_an_invalid_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a plan|Expecting"):
        from_json(text)


def test_a_plan_is_read_as_it_was_written() -> None:
    for seed in range(20):
        assert from_json(to_json(expand(seed))) == expand(seed)


def test_a_timeline_shows_what_happens() -> None:
    lines: list[str] = []
    assert simulate.timeline(expand(3), lines.append) == []
    text = "\n".join(lines)
    for part in ("grants service to", "elected: ", "fault: ", "all faults end"):
        assert part in text


def test_a_broken_run_is_described_by_the_targets_of_its_faults() -> None:
    faults = [RunFault(RunFaultKind.PAUSE, 8.5, 1.0, target) for target in (LEADER, 2)]
    plan = expand(1).with_faults(faults)
    broken = simulate.BrokenRun(plan, [Failure("D01", "a text", 9.0)], plan)
    assert simulate.described(broken) == [
        "seed 1: D01 at 9.000 s: a text",
        "  2 faults, and 2 in the smallest plan:",
        f"    at 8.5 s, the leader: {RunFaultKind.PAUSE.value}",
        f"    at 8.5 s, process 2: {RunFaultKind.PAUSE.value}",
    ]


def test_the_command_writes_the_smallest_plan(tmp_path: Path) -> None:
    with planted("no margin"):
        reported: list[simulate.BrokenRun] = []
        plans = simulate.of_seeds(1, 20)
        summary = simulate.simulate(plans, most=1, report=reported.append)
    (broken,) = reported
    assert summary.broken == reported
    assert "D01" in simulate.described(broken)[0]
    file = tmp_path / "plan.json"
    file.write_text(simulate.text_of(broken.smallest))
    assert simulate.of_file(file) == broken.smallest
    assert Schedule(broken.smallest).run() == []
