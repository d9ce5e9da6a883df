"""The models find nothing in the shipped decisions, and each of eight mistakes in them (X07)."""

from collections.abc import Callable

import pytest

from tests.gate.sizes import others_large

from .deadline_model import TimedRun, overlaps
from .model import failures
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
