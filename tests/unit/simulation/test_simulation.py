"""Simulated threads: one seed decides everything."""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import psutil
import pytest
from typing_extensions import override

from kip30.runtime import dispatcher
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.simulation import locks, present, threads
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.scheduler import Simulation, StuckError
from kip30_conformance.simulation.signal_handlers import raised_by_run
from kip30_conformance.simulation.stand_ins import installed


def sleep(seconds: float) -> None:
    core: Any = dispatcher
    core.time.sleep(seconds)


def simulation_now() -> float:
    return present.simulation().now


def after(seconds: float, call: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        sleep(seconds)
        call()

    return work


def run(work: Callable[[], object], seed: int = 1, **how: float) -> Simulation:
    """Call *work* on a simulated thread, and return the simulation when that has ended."""
    simulation = Simulation(seed, **how)
    with installed(simulation):
        main = simulation.spawn(SimulatedProcess(simulation, "p"), "main", work)
        simulation.run(inf, lambda: main.is_done)
    assert simulation.failures == []
    return simulation


def test_sleeping_takes_virtual_time_alone() -> None:
    begun = time.monotonic()
    simulation = run(lambda: sleep(3_600))
    assert 3_600 <= simulation.now < 3_601
    assert time.monotonic() - begun < 60


def busy() -> None:
    """Let threads wait for each other, with timeouts, chance and all kinds of locks."""
    changed, done = locks.SimulatedCondition(), locks.SimulatedBarrier(4)
    items = threads.SimulatedQueue()
    gate = locks.SimulatedSemaphore(2)

    def work() -> None:
        for _ in range(20):
            with gate:
                sleep(dispatcher_random())
            with changed:
                changed.notify()
            with changed:
                changed.wait(0.01)
            items.put(1)
        done.wait()

    started = [threads.Thread(target=work, name=str(number)) for number in range(3)]
    for one in started:
        one.start()
    done.wait()
    for one in started:
        one.join()
    assert items.qsize() == 60


def test_a_queue_with_a_bound_is_never_longer() -> None:
    def work() -> None:
        items = threads.SimulatedQueue(2)

        def produce() -> None:
            for number in range(9):
                items.put(number)

        producer = threads.Thread(target=produce)
        producer.start()
        sleep(1)
        assert items.qsize() == 2
        with pytest.raises(queue.Full):
            items.put(9, timeout=1)
        assert [items.get() for _ in range(9)] == list(range(9))
        with pytest.raises(queue.Empty):
            items.get_nowait()
        producer.join()

    run(work)


def test_a_bounded_semaphore_is_not_released_too_often() -> None:
    def work() -> None:
        gate = locks.SimulatedBoundedSemaphore(1)
        with gate:
            assert not gate.acquire(timeout=1)
        with pytest.raises(ValueError, match="too many times"):
            gate.release()
        assert gate.acquire(blocking=False)

    run(work)


def dispatcher_random() -> float:
    from kip30_conformance.simulation.present import simulation  # noqa: PLC0415  while one runs

    return simulation().chance.random()


def traces(seeds: range) -> list[tuple[int, int]]:
    found = (run(busy, seed, interruptions=0.1) for seed in seeds)
    return [(one.trace, one.switches) for one in found]


@pytest.mark.case("D15")
def test_d15_a_seed_has_one_trace() -> None:
    once, again = traces(range(20)), traces(range(20))
    assert once == again
    assert len(set(once)) == len(once)


@pytest.mark.case("D15")
@pytest.mark.medium
def test_d15_a_seed_has_one_trace_in_other_processes() -> None:
    code = f"from {__name__} import traces; print(traces(range(3)))"
    path = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{traces(range(3))}\n"}


def test_a_deadlock_is_an_error_and_names_the_time() -> None:
    with pytest.raises(StuckError, match=r"wait for each other at 5\.\d+ s"):
        run(after(5, lambda: locks.SimulatedEvent().wait()))


def test_an_exception_in_a_thread_is_recorded_as_a_failure() -> None:
    simulation, told = Simulation(1), list[tuple[str, BaseException]]()
    simulation.on_failure = lambda ended, error: told.append((ended.name, error))
    with installed(simulation):
        thread = simulation.spawn(SimulatedProcess(simulation, "p"), "t", lambda: 1 / 0)
        simulation.run(1.0)
    assert thread.is_done
    assert simulation.failures == ["p/t: ZeroDivisionError('division by zero')"]
    assert [(name, type(error)) for name, error in told] == [("t", ZeroDivisionError)]


def test_a_paused_process_has_a_clock_and_no_turn() -> None:
    simulation = Simulation(1)
    seen: list[float] = []
    with installed(simulation):
        process = SimulatedProcess(simulation, "p", rate=2.0)
        simulation.spawn(process, "t", after(1, lambda: seen.append(process.now())))
        process.is_paused = True
        simulation.at(10.0, lambda: setattr(process, "is_paused", False))
        simulation.run(20.0)
    assert 1_021 <= seen[0] < 1_022


def test_a_killed_process_runs_no_more() -> None:
    simulation = Simulation(1)
    seen: list[str] = []
    with installed(simulation):
        process = SimulatedProcess(simulation, "p")
        simulation.spawn(process, "t", after(1, lambda: seen.append("late")))
        simulation.at(0.5, lambda: simulation.kill(process))
        simulation.run(5.0)
    assert seen == []


def test_one_simulation_at_a_time() -> None:
    with (
        installed(Simulation(1)),
        pytest.raises(RuntimeError, match="runs already"),
        installed(Simulation(2)),
    ):
        pass


def test_an_interruption_strikes_where_a_thread_has_given_way() -> None:
    simulation = Simulation(1, interruptions=1.0)
    told: list[BaseException] = []
    simulation.on_failure = lambda _thread, error: told.append(error)
    with installed(simulation):
        process = SimulatedProcess(simulation, "p")
        struck = simulation.spawn(process, "struck", lambda: locks.SimulatedLock().acquire())
        simulation.spawn(
            process, "other", lambda: simulation.interrupt(struck, KeyboardInterrupt())
        )
        simulation.run(1.0)
    assert [type(error) for error in told] == [KeyboardInterrupt]


class HandlerError(Exception):
    """Raised by a handler of a signal."""


@pytest.mark.parametrize("place", ["_ready", "current", "chance"])
def test_a_signal_in_the_scheduler_loses_no_thread(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It raises where the scheduler sets, or looks for, what it needs for a switch."""
    simulation, done = Simulation(1), list[str]()
    with installed(simulation):
        process = SimulatedProcess(simulation, "p")
        for name in "abc":
            simulation.spawn(process, name, after(1, partial(done.append, name)))
        strikes = iter([False] * 4 + [True] + [False] * 1_000)

        def strike(_simulation: Simulation, name: str) -> None:
            if name == place and next(strikes):
                raise HandlerError

        watched = watching(strike)
        monkeypatch.setattr(simulation, "__class__", watched)
        with pytest.raises(HandlerError):
            simulation.run(10.0)
        simulation.run(10.0)
    assert sorted(done) == ["a", "b", "c"]


def watching(look: Callable[[Simulation, str], None]) -> type[Simulation]:
    """Return a kind of simulation that calls *look* whenever the scheduler uses an attribute."""

    class Watched(Simulation):
        @override
        def __getattribute__(self, name: str) -> Any:
            if object.__getattribute__(self, "current") is None:
                look(self, name)
            return super().__getattribute__(name)

        @override
        def __setattr__(self, name: str, value: object) -> None:
            if object.__getattribute__(self, "current") is None:
                look(self, name)
            super().__setattr__(name, value)

    return Watched


class _Ended(BaseException):
    pass


def test_an_exception_of_a_handler_ends_the_run_and_no_thread() -> None:
    def handle(*_: object) -> None:
        raise _Ended

    seen: list[str] = []
    simulation = Simulation(1)

    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append("its turn ends")
        simulation.park(1.0)
        seen.append("another turn")

    simulation.spawn(SimulatedProcess(simulation, "p"), "main", work)
    before = signal.signal(signal.SIGTERM, handle)
    try:
        with pytest.raises(_Ended), raised_by_run(simulation):
            simulation.run(10.0)
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (seen, simulation.failures) == (["its turn ends"], [])


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_command_ends_at_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "kip30", "simulate", "--seeds", "1-1000000"]
    with heeded(), subprocess.Popen(command, stderr=subprocess.PIPE) as running:
        eventually(lambda: psutil.Process(running.pid).cpu_times().user > 2.0)  # runs are made
        running.send_signal(number)
        _, errors = running.communicate(timeout=60 * time_scale())
    assert (running.returncode, b"Traceback" in errors) == (128 + number, False)


def test_a_join_that_times_out_causes_no_later_wakeup() -> None:
    woken: list[float] = []

    def main() -> None:
        thread = threads.Thread(target=sleep, args=(50.0,))
        thread.start()
        thread.join(1.0)
        sleep(100.0)
        woken.append(simulation_now())

    run(main)
    assert 101 <= woken[0] < 102


def test_a_wait_that_was_notified_delays_no_deadlock() -> None:
    changed = locks.SimulatedCondition()

    def wait() -> None:
        with changed:
            changed.wait(3_600)
        locks.SimulatedEvent().wait()

    def main() -> None:
        waiter = threads.Thread(target=wait)
        waiter.start()
        sleep(1.0)
        with changed:
            changed.notify()
        waiter.join()

    with pytest.raises(StuckError, match=r"wait for each other at 1\.\d+ s"):
        run(main)


def test_finished_threads_are_forgotten() -> None:
    simulation = Simulation(1)
    with installed(simulation):
        process = SimulatedProcess(simulation, "p")
        simulation.spawn(process, "short", lambda: None)
        stays = simulation.spawn(process, "long", lambda: sleep(9))
        simulation.run(1.0)
        assert simulation.threads() == [stays]
    assert simulation.threads() == []
