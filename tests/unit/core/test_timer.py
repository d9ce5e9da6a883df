"""The thread that does what is due later."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from kip30.driver.kit.timer import Timer
from kip30_conformance.polling import eventually, time_scale
from tests.unit.threads import no_threads

pytestmark = pytest.mark.virtual_time

LONG = 3600.0


@pytest.fixture
def timer() -> Iterator[Timer]:
    made = Timer("timer-of-a-test")
    yield made
    made.stop()


def test_actions_are_called_in_the_order_in_which_they_are_due(timer: Timer) -> None:
    called: list[str] = []
    timer.after(0.5 * time_scale(), lambda: called.append("later"))
    timer.after(0.0, lambda: called.append("sooner"))
    eventually(lambda: called == ["sooner", "later"], what="both were called")


def test_a_cancelled_action_is_skipped_and_the_next_is_called(timer: Timer) -> None:
    called: list[str] = []
    due = timer.after(0.05, lambda: called.append("cancelled"))
    timer.after(0.1, lambda: called.append("called"))
    assert due is not None
    due.cancel()
    eventually(lambda: called == ["called"], what="the second one was called")


def test_a_cancelled_action_is_not_kept_alive(timer: Timer) -> None:
    class Owner:
        def act(self) -> None:
            """Be something that an action refers to."""

    owner = Owner()
    gone = weakref.ref(owner)
    due = timer.after(LONG, owner.act)
    assert due is not None
    due.cancel()
    del owner
    gc.collect()
    assert gone() is None


def test_an_action_that_was_called_is_not_kept_alive(timer: Timer) -> None:
    class Owner:
        def act(self) -> None:
            """Be something that an action refers to."""

    owner = Owner()
    gone = weakref.ref(owner)
    timer.after(0.0, owner.act)
    del owner
    eventually(lambda: gone() is None, within=1, what="nothing refers to it")


def test_a_stopped_timer_calls_all_that_was_not_cancelled_and_takes_no_more() -> None:
    timer, called = Timer("timer-of-a-test"), list[str]()
    due = timer.after(LONG, lambda: called.append("cancelled"))
    timer.after(LONG, lambda: called.append("called"))
    assert due is not None
    due.cancel()
    timer.stop()
    assert called == ["called"]
    assert timer.after(0, lambda: called.append("too late")) is None
    assert "timer-of-a-test" not in {thread.name for thread in threading.enumerate()}


def test_a_timer_that_could_have_no_thread_goes_on_when_it_can(
    timer: Timer,
) -> None:
    called: list[str] = []
    with no_threads():
        timer.after(0.0, lambda: called.append("first"))
    timer.after(0.0, lambda: called.append("second"))
    eventually(lambda: called == ["first", "second"], what="both were called")


def test_a_repeated_action_is_called_again_also_after_it_has_raised(timer: Timer) -> None:
    called: list[str] = []

    def act() -> None:
        called.append("again")
        if len(called) == 1:
            raise ValueError("the first time")

    timer.every(0.01, act)
    eventually(lambda: len(called) > 2, what="it was called after it had raised")


def test_a_stopped_timer_does_not_call_a_repeated_action() -> None:
    timer, called = Timer("timer-of-a-test"), list[str]()
    timer.every(LONG, lambda: called.append("too late"))
    timer.stop()
    assert called == []
