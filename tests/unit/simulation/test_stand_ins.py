"""Stand-ins: they do what the real ones do, for the threads of a simulation alone, and go away."""

import asyncio
import gc
import os
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    Future,
    ThreadPoolExecutor,
    wait,
)
from math import inf
from typing import Any

import pytest

from kip30.driver.records import new_nonce
from kip30.runtime import dispatcher
from kip30_conformance.polling import time_scale
from kip30_conformance.simulation import locks, threads
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.scheduler import Simulation, StuckError
from kip30_conformance.simulation.stand_ins import installed, late_modules

PREFIXES = ("kip30", __name__)
CORE: Any = dispatcher
"""A module of kip30, whose names are not its interface."""


def run(*work: Callable[[], object], seed: int = 1, **how: float) -> Simulation:
    """Call each *work* on a simulated thread, and return the simulation when all have ended."""
    simulation = Simulation(seed, **how)
    with installed(simulation, PREFIXES):
        process = SimulatedProcess(simulation, "p")
        spawned = [simulation.spawn(process, str(n), one) for n, one in enumerate(work)]
        simulation.run(inf, lambda: all(one.is_done for one in spawned))
    assert simulation.failures == []
    return simulation


def names() -> dict[tuple[str, str], int]:
    """Return what each name of each module of kip30 and of the library below it refers to."""
    return {
        (name, key): id(value)
        for name, module in list(sys.modules.items())
        if name.startswith((*PREFIXES, "concurrent.futures", "uuid"))
        for key, value in list(vars(module).items())
    }


def fail(error: type[BaseException] | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("return_when", "expected"),
    [
        (FIRST_COMPLETED, [(0, 3, 1.0), (1, 2, 2.0), (1, 2, 2.0)]),
        (ALL_COMPLETED, [(0, 3, 1.0), (3, 0, 6.0), (3, 0, 6.0)]),
    ],
)
def test_some_or_all_futures_are_waited_for(
    return_when: str, expected: list[tuple[int, int, float]]
) -> None:
    seen = list[tuple[int, int, float]]()

    def work() -> None:
        begun, futures = time.monotonic(), [Future[None]() for _ in range(3)]

        def complete() -> None:
            for future in futures:
                time.sleep(2.0)
                future.set_result(None)

        threading.Thread(target=complete).start()
        for seconds in (1.0, 100.0, 100.0):
            done, left = wait(futures, seconds, return_when)
            seen.append((len(done), len(left), round(time.monotonic() - begun, 1)))
        assert wait([], 100.0, return_when) == (set(), set())
        time.sleep(10.0)
        assert not any(future._waiters for future in futures)

    run(work)
    assert seen == expected


@pytest.mark.case("D18")
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, StuckError])
def test_d18_everything_is_put_back(error: type[BaseException] | None) -> None:
    before = names()
    try:
        with installed(Simulation(1), PREFIXES) as simulation:
            assert names() != before
            assert not gc.isenabled()
            simulation.spawn(SimulatedProcess(simulation, "p"), "t", lambda: time.sleep(9))
            simulation.run(1.0)
            fail(error)
    except BaseException as raised:  # noqa: BLE001  it is the one that was raised
        assert type(raised) is error  # noqa: PT017
    assert names() == before
    assert gc.isenabled()


@pytest.mark.case("D18")
def test_d18_other_threads_go_on() -> None:
    """They run modules of which a simulation runs as well: each gets what it belongs to."""
    asked, answered = queue.SimpleQueue[str](), queue.SimpleQueue[Any]()

    def real() -> None:
        asked.get()
        event = CORE.threading.Event()
        CORE.time.sleep(0.001)
        answered.put((event, time.monotonic(), CORE.threading.current_thread()))

    thread = threading.Thread(target=real)
    thread.start()
    begun = time.monotonic()
    with installed(Simulation(1), PREFIXES) as simulation:
        asked.put("")
        event, now, current = answered.get(timeout=10 * time_scale())
    thread.join()
    assert type(event) is threading.Event
    assert now >= begun
    assert current is thread
    assert simulation.switches == 0


def test_an_object_of_a_simulation_refuses_other_threads() -> None:
    taken = locks.SimulatedLock()
    taken.acquire()
    errors: list[str] = []

    def real() -> None:
        try:
            taken.acquire()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=real)
    with installed(Simulation(1), PREFIXES):
        thread.start()
        thread.join()
    assert errors == ["this object belongs to a simulation, which runs in another thread"]


def test_an_object_that_outlives_its_simulation_can_be_dropped_but_not_waited_for() -> None:
    lock = locks.SimulatedRLock()
    with lock, lock:  # as a finalizer does
        pass
    taken = locks.SimulatedLock()
    assert taken.acquire()
    with pytest.raises(RuntimeError, match="no simulation runs"):
        taken.acquire()


def test_a_name_that_was_imported_is_replaced_too() -> None:
    simulation = run(lambda: imported_sleep(100), lambda: imported_sleep(50))
    assert 100 <= simulation.now < 101


imported_sleep = time.sleep


def test_locals_are_those_of_a_simulated_thread() -> None:
    seen: list[tuple[str, bool]] = []

    def work(name: str) -> None:
        local.name = name
        time.sleep(1)
        seen.append((local.name, hasattr(local, "other")))
        del local.name
        with pytest.raises(AttributeError):
            del local.name

    local = threads.Local()
    run(lambda: work("a"), lambda: work("b"))
    assert sorted(seen) == [("a", False), ("b", False)]


def test_locals_end_with_their_thread() -> None:
    class Closing:
        def __del__(self) -> None:
            with lock:
                closed.append(time.monotonic())

    def work() -> None:
        local.kept = Closing()
        time.sleep(1)

    closed, lock, local = list[float](), locks.SimulatedLock(), threads.Local()
    run(work, lambda: time.sleep(5))
    assert [round(moment - 1_000) for moment in closed] == [1]


def test_an_interrupted_waiter_passes_the_lock_on() -> None:
    got: list[str] = []
    simulation = Simulation(1)
    with installed(simulation, PREFIXES):
        lock = locks.SimulatedLock()
        lock.acquire()
        process = SimulatedProcess(simulation, "p")
        simulation.spawn(process, "sleeper", lambda: time.sleep(9))  # so that none is stuck
        first = simulation.spawn(process, "first", lock.acquire)
        simulation.run(0.1)
        simulation.spawn(process, "second", lambda: got.append(str(lock.acquire())))
        simulation.run(0.2)
        lock.release()
        simulation.interrupt(first, KeyboardInterrupt())
        simulation.run(0.3)
    assert got == ["True"]


def test_threads_in_a_set_are_in_the_order_in_which_they_were_made() -> None:
    """A pool of the standard library has one, and joins its threads in that order."""
    orders = []

    def work() -> None:
        made = [threading.Thread(name=str(number)) for number in range(50)]
        orders.append([one.name for one in set(made)])

    for _ in range(2):
        run(work)
    assert orders[0] == orders[1]


def test_futures_and_pools_of_the_standard_library_are_simulated() -> None:
    results: list[int] = []

    def work() -> None:
        future = Future[int]()

        def answer() -> None:
            time.sleep(1_000)
            future.set_result(1)

        with ThreadPoolExecutor(3) as pool:
            pool.submit(answer)
            results.append(future.result(timeout=2_000))
            with pytest.raises(TimeoutError):
                Future[int]().result(timeout=100)

    begun = time.monotonic()
    assert 1_100 <= run(work).now < 1_101
    assert results == [1]
    assert time.monotonic() - begun < 100


def test_an_event_loop_is_refused_instead_of_blocking_all_threads() -> None:
    refused: list[str] = []

    async def waits() -> None:
        await asyncio.sleep(3_600)

    def work() -> None:
        with pytest.raises(RuntimeError) as error:
            asyncio.run(waits())
        refused.append(str(error.value))

    run(work)
    assert "mark this real_time" in refused[0]


def test_chance_is_that_of_the_seed() -> None:
    drawn: list[tuple[object, ...]] = []

    def draw() -> None:
        drawn.append((random.random(), new_nonce()))  # noqa: S311

    for seed in (1, 1, 2):
        run(draw, seed=seed)
    assert drawn[0] == drawn[1]
    assert {*drawn[0]}.isdisjoint(drawn[2])


def test_a_module_that_is_imported_too_late_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "kip30_late.py").write_text("import time")
    (tmp_path / "kip30_timeless.py").write_text("import re")
    monkeypatch.syspath_prepend(tmp_path)
    with installed(Simulation(1), ("kip30",)):
        assert late_modules(("kip30",)) == []
        __import__("kip30_late")
        __import__("kip30_timeless")
        assert late_modules(("kip30",)) == ["kip30_late"]
    for name in ("kip30_late", "kip30_timeless"):
        monkeypatch.delitem(sys.modules, name)


def test_a_thread_that_waits_in_a_loop_lets_others_run_and_time_pass() -> None:
    flag: list[bool] = []

    def wait_for_flag() -> None:
        while not flag:
            Future[None]().done()  # takes a lock, and never blocks

    def wait_for_time() -> None:
        until = CORE.time.monotonic() + 0.05
        while CORE.time.monotonic() < until:
            pass
        flag.append(True)

    assert run(wait_for_flag, wait_for_time).now < 1


def test_all_clocks_of_a_process_agree() -> None:
    def compare() -> None:
        clock = time.CLOCK_MONOTONIC
        before = CORE.time.monotonic_ns()
        CORE.time.sleep(1)
        assert 1e9 <= CORE.time.clock_gettime_ns(clock) - before < 1.1e9

    run(compare)


def test_a_thread_left_by_a_simulation_can_be_joined_at_once() -> None:
    left: list[Any] = []

    def start() -> None:
        thread = CORE.threading.Thread(target=CORE.time.sleep, args=[9])
        thread.start()
        left.append(thread)

    run(start)
    left[0].join()


def test_each_process_has_its_own_id() -> None:
    simulation, seen = Simulation(1), list[int]()
    with installed(simulation, PREFIXES):
        for pid in (None, 10_000_001):
            process = SimulatedProcess(simulation, f"p{pid}", pid=pid)
            simulation.spawn(process, "t", lambda: seen.append(os.getpid()))
        simulation.run(1.0)
    assert sorted(seen) == [os.getpid(), 10_000_001]
