"""Runs on the guide's example stores behind a bad network: right drivers break no promise."""

import sys
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from toystore import ToyBackend
from toystore.settings import ToySettings
from typing_extensions import override

from kip30 import ConfigError
from kip30.driver import Backend, Context
from kip30_conformance.simulation import simulate
from kip30_conformance.simulation.plan import LEADER, RunFault, RunFaultKind, RunPlan, expand
from kip30_conformance.simulation.promises import Failure
from kip30_conformance.simulation.simulate import SimulatedStore
from kip30_conformance.simulation.store_schedule import StoreSchedule
from kip30_conformance.simulation.unreliable import named

from .virtual_line import in_virtual_time
from .wrong_drivers import MISTAKES, TakesFromLeaders

pytestmark = pytest.mark.medium

TOY = "toystore:ToyBackend"
LINE = "linestore:LineBackend"
MOST_RUNS = 50
"""Within how many runs each mistake must be convicted."""
MANY, SEEDS_OF_A_TEST = 600, 50


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    simulate.prepare()


def _store(name: str) -> SimulatedStore:
    return SimulatedStore({"plugin.locator.classname": name})


def _plans(first: int, last: int) -> Iterable[RunPlan]:
    """Return plans without kills: no toy store outlives its process, so none ends a session."""
    return simulate.without(simulate.of_seeds(first, last), ["kill"])


def _expect_kept(store: SimulatedStore, plans: Iterable[RunPlan]) -> None:
    summary = simulate.simulate(plans, most=1, store=store)
    assert [simulate.described(one) for one in summary.broken] == []
    assert summary.runs > 0


def test_the_toy_store_breaks_no_promise() -> None:
    _expect_kept(_store(TOY), _plans(1, 8))


def test_the_line_store_breaks_no_promise_and_ends_the_sessions_of_killed_clients() -> None:
    with in_virtual_time():
        _expect_kept(_store(LINE), simulate.of_seeds(1, 3))


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(101, MANY, SEEDS_OF_A_TEST))
def test_no_example_breaks_a_promise_in_many_runs(first: int) -> None:
    last = first + SEEDS_OF_A_TEST - 1
    _expect_kept(_store(TOY), _plans(first, last))
    with in_virtual_time():
        _expect_kept(_store(LINE), simulate.of_seeds(first, last))


def _first_broken(backend: type[Backend], seed: int) -> tuple[RunPlan, list[Failure]]:
    """Return the first plan from *seed* on that convicts *backend*, and what it breaks."""
    with named(backend) as name:
        store = _store(name)
        for runs in count():
            assert runs < MOST_RUNS, "not found"
            (plan,) = _plans(seed + runs, seed + runs)
            failures = StoreSchedule(store, plan).run()
            if failures:
                return plan, failures
    raise AssertionError


@pytest.mark.parametrize("backend", MISTAKES, ids=lambda backend: backend.__name__)
def test_a_mistake_of_a_driver_is_convicted(backend: type[Backend]) -> None:
    plan, failures = _first_broken(backend, 1)
    assert failures[0].promise == MISTAKES[backend]
    assert StoreSchedule(_store(TOY), plan).run() == []


@pytest.mark.large
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [201, 401])
@pytest.mark.parametrize("backend", MISTAKES, ids=lambda backend: backend.__name__)
def test_a_mistake_of_a_driver_is_convicted_from_other_seeds(
    backend: type[Backend], seed: int
) -> None:
    _, failures = _first_broken(backend, seed)
    assert failures[0].promise == MISTAKES[backend]


class WithoutFaults(TakesFromLeaders):
    """Offers no way to end a session, as the backend of another author may."""

    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        del self.faults


def test_a_fault_that_the_store_does_not_offer_excuses_no_term() -> None:
    """Every process is struck before it leads."""
    promises = Counter[str]()
    with named(WithoutFaults) as name:
        for plan in _plans(1, 12):
            numbers = range(len(plan.rates))
            expired = [RunFault(RunFaultKind.EXPIRE, 4.0, 0.5, number) for number in numbers]
            failures = StoreSchedule(_store(name), plan.with_faults(expired)).run()
            promises[failures[0].promise if failures else "kept"] += 1
    assert promises["D02"] >= 10, promises


def test_a_store_that_never_ends_a_session_is_convicted_by_a_kill() -> None:
    kill = RunFault(RunFaultKind.KILL, at=8.0, seconds=2.0, target=LEADER)
    plan = expand(1, fault_seconds=15.0).with_faults([kill])
    failures = StoreSchedule(_store(TOY), plan).run()
    assert failures[0].promise == "D05"


def test_a_run_on_a_store_repeats() -> None:
    store, plan = _store(TOY), expand(3, fault_seconds=40.0)

    def lines() -> list[str]:
        shown: list[str] = []
        simulate.timeline(plan, shown.append, store)
        return shown

    first = lines()
    assert first == lines()
    for part in ("fault: ", "elected: ", "at the driver: done", "at the core: ", "all faults end"):
        assert part in "\n".join(first)


class LateImport(ToyBackend):
    """Imports a module of its package when it is opened: in real time."""

    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        import_module("toystore_late")
        super().__init__(context, settings)


def test_a_module_that_would_run_in_real_time_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toystore_late.py").write_text("import threading\n")
    monkeypatch.syspath_prepend(tmp_path)
    with named(LateImport) as name:
        failures = StoreSchedule(_store(name), expand(1)).run()
    sys.modules.pop("toystore_late")
    assert failures[0].promise == "error"
    assert "toystore_late was imported during the run" in failures[0].text


class FailingStore(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        raise RuntimeError("broken")


def test_an_error_that_is_not_of_kip30_ends_the_run() -> None:
    with named(FailingStore) as name:
        schedule = StoreSchedule(_store(name), expand(1))
        failures = schedule.run()
    assert failures[0].promise == "error"
    assert "RuntimeError('broken')" in failures[0].text
    assert schedule.now < 1.0


def test_a_store_that_waits_in_the_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="'embedded' waits in the system"):
        SimulatedStore({"plugin.backend": "embedded"})


def test_faults_of_no_known_kind_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fire: faults are cut_off, .*, kill"):
        simulate.without([], ["fire"])
