"""Threads that a fork waits for, and objects that its child leaves alone."""

import os
import threading
import time

import pytest

from kip30.driver.kit import fork_safety
from kip30.driver.kit.fork_safety import UninterruptedByFork
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.polling import time_scale

SOON = 10


@pytest.fixture(scope="module")
def section() -> UninterruptedByFork:
    return UninterruptedByFork(SOON * time_scale())


@pytest.fixture(scope="module")
def hurried() -> UninterruptedByFork:
    return UninterruptedByFork(0.05)


def _inside(section: UninterruptedByFork, until: threading.Event) -> threading.Thread:
    """Return a thread that is inside *section* until *until* is set."""
    entered = threading.Event()

    def stay() -> None:
        with section:
            entered.set()
            until.wait(SOON * time_scale())

    thread = threading.Thread(target=stay)
    thread.start()
    assert entered.wait(SOON * time_scale())
    return thread


def test_a_fork_waits_until_no_thread_is_inside(section: UninterruptedByFork) -> None:
    done = threading.Event()
    thread = _inside(section, done)
    threading.Timer(0.1, done.set).start()
    assert in_forked_child(done.is_set) == "True"
    thread.join()


def test_a_fork_does_not_wait_for_ever(hurried: UninterruptedByFork) -> None:
    done = threading.Event()
    thread = _inside(hurried, done)
    assert in_forked_child(lambda: _enters(hurried)) == "True"
    done.set()
    thread.join()
    assert _enters(hurried)


def test_a_fork_from_inside_does_not_wait_for_its_own_thread(
    section: UninterruptedByFork,
) -> None:
    started = time.monotonic()
    with section, section:
        assert in_forked_child(lambda: _enters(section)) == "True"
    assert time.monotonic() - started < SOON * time_scale() / 2
    assert in_forked_child(lambda: _enters(section)) == "True"


def test_a_child_may_fork(section: UninterruptedByFork) -> None:
    assert in_forked_child(lambda: in_forked_child(lambda: _enters(section))) == "True"


def test_threads_that_enter_all_the_time_do_not_keep_a_fork_waiting(
    section: UninterruptedByFork,
) -> None:
    stopped = threading.Event()

    def enter() -> None:
        while not stopped.is_set():
            with section:
                time.sleep(0.001)

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    for _ in range(10):
        assert in_forked_child(lambda: _enters(section)) == "True"
    assert time.monotonic() - started < SOON * time_scale()
    stopped.set()
    for thread in threads:
        thread.join()


def test_all_objects_are_abandoned_in_a_child_even_if_one_raises() -> None:
    class Thing:
        def __init__(self, error: type[Exception] | None = None) -> None:
            self.abandoned_by = 0
            self._error = error

        def abandon(self) -> None:
            self.abandoned_by = os.getpid()
            if self._error is not None:
                raise self._error

    things = [Thing(), Thing(ValueError), Thing()]
    for thing in things:
        fork_safety.register(thing)
    mine = in_forked_child(lambda: {one.abandoned_by for one in things} == {os.getpid()})
    assert mine == "True"
    assert [one.abandoned_by for one in things] == [0, 0, 0]


def _enters(section: UninterruptedByFork) -> bool:
    entered = threading.Event()

    def enter() -> None:
        with section:
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return entered.wait(SOON * time_scale() / 2)
