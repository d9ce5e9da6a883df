"""The models find nothing in the shipped decisions, and each of eight mistakes in them (X07)."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.gate.sizes import others_large

from .deadline_model import TimedRun, overlaps
from .model import ITEMS, TICKS, Adversary, Schedule, failures
from .mutants import MUTANTS

SEEDS = [range(20), *(range(first, first + 200) for first in range(0, 4000, 200))]
"""The schedules of each test: together they take four minutes of one processor."""


@pytest.mark.parametrize("seeds", others_large(SEEDS), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_random_schedules_find_nothing(seeds: range) -> None:
    assert failures(seeds) == {}


@pytest.mark.parametrize("schedules", [3, pytest.param(30, marks=pytest.mark.large)])
def test_timed_schedules_find_no_overlap(schedules: int) -> None:
    runs = [TimedRun(seed) for seed in range(schedules)]
    assert [run.overlap() for run in runs] == [""] * len(runs)
    # It would prove nothing if there was no work, or if none of it passed on.
    assert min(run.worked for run in runs) > 0
    assert all(run.store.state is not None and run.store.state.generation > 5 for run in runs)


def generation(run: Schedule) -> int:
    return 0 if run.store.state is None else run.store.state.generation


def step_until(run: Schedule, condition: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if condition():
            return
        run._step(run.live())
        assert run.errors == []
    pytest.fail("it does not come to that")


@pytest.mark.case("K73")
@pytest.mark.parametrize("seed", range(4))
def test_a_lost_key_of_an_instance_ends_no_member(seed: int) -> None:
    run = Schedule(seed, processes=0)
    run.is_faulty = False
    for instance in ("first", "second"):
        run.add(instance)
    step_until(run, run._is_at_rest)
    run.store.lose_instance("second")
    run.changed = True
    step_until(run, lambda: run.store.holders.get("second") == run.all[1].member_id)
    step_until(run, run._is_at_rest)
    assert len(run.live()) == 2


@pytest.mark.case("K43")
@pytest.mark.case("K44")
@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_work_of_an_absent_static_member_is_not_withheld(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    grace = 5_000
    config = replace(TICKS.config, static_grace_seconds=float(grace))
    monkeypatch.setattr(Adversary, "timings", TICKS._replace(config=config))
    run = Schedule(seed, processes=0)
    run.is_faulty = False
    for instance in ("first", "away"):
        run.add(instance)
    first, away = run.all
    step_until(run, run._is_at_rest)
    number = generation(run)
    first.facts = first.facts.wanting_rejoin()  # so that the next record says what each holds
    step_until(run, lambda: generation(run) > number and run._is_at_rest())
    number = generation(run)
    away.is_alive = False
    del run.store.members[away.member_id]
    run.add("newcomer")
    until = run.tick + grace // 2
    step_until(run, lambda: run.tick >= until)
    assert generation(run) <= number + 2
    found = [run.assignment(one.instance) for one in run.all]
    shares = [json.loads(one.share) if one is not None else [] for one in found]
    assert sorted(item for share in shares for item in share) == [*range(ITEMS)]
    assert sorted(map(len, shares)) == [2, 2, 3]
    assert [sorted(one.application.held) for one in run.live()] == [shares[0], shares[2]]


@pytest.mark.case("X07")
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_mutant_is_convicted(
    monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    conviction = MUTANTS[mutate]
    mutate(monkeypatch)
    run = overlaps if conviction.is_timed else failures
    found = run(conviction.seeds)
    assert found.keys() == {*conviction.seeds}
    assert all(conviction.error in error for error in found.values())


@pytest.mark.case("X07")
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__)
def test_the_sound_decisions_are_acquitted_by_the_same_schedules(
    mutate: Callable[[pytest.MonkeyPatch], None],
) -> None:
    conviction = MUTANTS[mutate]
    run = overlaps if conviction.is_timed else failures
    assert run(conviction.seeds) == {}
