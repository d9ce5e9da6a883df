"""Threads that the system may not have to spare."""

import threading

import pytest

from kip30 import UnavailableError
from kip30.driver.clock import SystemClock
from kip30.driver.kit.thread_start import start_eventually, started
from kip30.driver.kit.timer import Timer
from kip30.runtime.dispatcher import Dispatcher
from kip30_conformance.polling import eventually, time_scale
from tests.unit.threads import no_threads

SOON = 5
LONG = 3600.0


def test_postponed_threads_start_after_the_next_started_thread() -> None:
    done = [threading.Event() for _ in range(3)]
    with no_threads():
        for one in done:
            start_eventually(threading.Thread(target=one.set))
    assert not any(one.is_set() for one in done)
    assert started(threading.Thread(target=print))
    assert all(one.wait(SOON * time_scale()) for one in done)


def test_a_lack_of_threads_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with no_threads():
        for _ in range(100):
            assert not started(threading.Thread(target=print))
    assert caplog.text.count("can't start new thread") <= 2


def test_a_lack_of_threads_at_the_end_of_the_program_is_not_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 and later start none while they shut down."""
    monkeypatch.setattr("sys.is_finalizing", lambda: True)
    with no_threads():
        assert not started(threading.Thread(target=print))
    assert not caplog.records


def test_a_started_timer_needs_no_further_thread() -> None:
    timer, called = Timer("timer-of-a-test"), list[int]()
    timer.start()
    timer.after(0.0, lambda: called.append(1))
    eventually(lambda: called == [1], what="the first action was called")
    with no_threads():
        timer.after(0.0, lambda: called.append(2))
        eventually(lambda: called == [1, 2], what="the second action was called")
    timer.stop()


def test_a_timer_that_cannot_start_raises_unavailable() -> None:
    timer = Timer("timer-of-a-test")
    with no_threads(), pytest.raises(UnavailableError, match="no thread to spare"):
        timer.start()
    timer.start()
    timer.stop()


def test_an_action_that_raises_does_not_end_a_timer() -> None:
    timer, called = Timer("timer-of-a-test"), threading.Event()

    def fail() -> None:
        raise ValueError("a mistake")

    timer.after(0.0, fail)
    timer.after(0.01, called.set)
    assert called.wait(SOON * time_scale())
    timer.stop()


def test_a_task_that_was_woken_without_a_thread_to_spare_runs_later() -> None:
    dispatcher, ran = Dispatcher(SystemClock()), threading.Event()
    dispatcher.start()
    with no_threads():
        dispatcher.task(ran.set, "a task").wake()
    assert ran.wait(SOON * time_scale())
    dispatcher.close(SOON * time_scale())


def test_a_dispatcher_that_cannot_start_raises_unavailable() -> None:
    dispatcher = Dispatcher(SystemClock())
    with no_threads(), pytest.raises(UnavailableError, match="no thread to spare"):
        dispatcher.start()
    dispatcher.close(SOON * time_scale())
