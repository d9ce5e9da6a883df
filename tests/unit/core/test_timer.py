"""The thread that does what is due later."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from kip30.driver.kit.timer import Timer
from kip30_conformance.polling import TIME_SCALE, eventually
from tests.unit.threads import no_threads

LONG = 3600.0


@pytest.fixture
def pulse() -> Iterator[Timer]:
    made = Timer("pulse-of-a-test")
    yield made
    made.stop()


def test_actions_are_called_in_the_order_in_which_they_are_due(pulse: Timer) -> None:
    called: list[str] = []
    pulse.after(0.5 * TIME_SCALE, lambda: called.append("later"))
    pulse.after(0.0, lambda: called.append("sooner"))
    eventually(lambda: called == ["sooner", "later"], what="both were called")


def test_what_was_cancelled_is_not_called_but_what_comes_after_it_is(pulse: Timer) -> None:
    called: list[str] = []
    due = pulse.after(0.05, lambda: called.append("cancelled"))
    pulse.after(0.1, lambda: called.append("called"))
    assert due is not None
    due.cancel()
    eventually(lambda: called == ["called"], what="the second one was called")


def test_what_was_cancelled_is_not_kept(pulse: Timer) -> None:
    class Owner:
        def act(self) -> None:
            """Be something that an action refers to."""

    owner = Owner()
    gone = weakref.ref(owner)
    due = pulse.after(LONG, owner.act)
    assert due is not None
    due.cancel()
    del owner
    gc.collect()
    assert gone() is None


def test_a_stopped_pulse_calls_all_that_was_not_cancelled_and_takes_no_more() -> None:
    pulse, called = Timer("pulse-of-a-test"), list[str]()
    due = pulse.after(LONG, lambda: called.append("cancelled"))
    pulse.after(LONG, lambda: called.append("called"))
    assert due is not None
    due.cancel()
    pulse.stop()
    assert called == ["called"]
    assert pulse.after(0, lambda: called.append("too late")) is None
    assert "pulse-of-a-test" not in {thread.name for thread in threading.enumerate()}


def test_a_pulse_that_could_have_no_thread_goes_on_when_it_can(
    pulse: Timer,
) -> None:
    called: list[str] = []
    with no_threads():
        pulse.after(0.0, lambda: called.append("first"))
    pulse.after(0.0, lambda: called.append("second"))
    eventually(lambda: called == ["first", "second"], what="both were called")
