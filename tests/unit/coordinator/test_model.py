"""The models find nothing in the shipped decisions, and each of eight mistakes in them (X07)."""

from collections.abc import Callable

import pytest

from .deadline_model import TimedRun, overlaps
from .model import failures
from .mutants import MUTANTS


@pytest.mark.parametrize("schedules", [20, pytest.param(200, marks=pytest.mark.large)])
def test_random_schedules_find_nothing(schedules: int) -> None:
    assert failures(range(schedules)) == {}


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
