"""Watches that read their targets after each change: nothing is late because something failed."""

import threading
from collections.abc import Iterator

import pytest

from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.polled_watches import PolledWatches
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import UnavailableError
from kip30_conformance.polling import eventually, time_scale

TARGET = Target(Kind.VALUE, "n", "k")
NAME = "kip30-test-watches"


class Counter:
    """A state that grows, whose changes wake those who wait, and whose next reads may fail."""

    def __init__(self) -> None:
        self.failures = 0
        self.patience = list[float]()
        self._order = 0
        self._is_changed = threading.Event()

    def change(self) -> None:
        self._order += 1
        self._is_changed.set()

    def read(self, _target: Target) -> Snapshot:
        if self.failures:
            self.failures -= 1
            raise UnavailableError("no answer")
        return Snapshot(self._order, {})

    def wait(self, seconds: float) -> None:
        self.patience.append(seconds)
        self._is_changed.wait(seconds)
        self._is_changed.clear()


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def watches(counter: Counter) -> Iterator[PolledWatches]:
    calls = BlockingCalls(f"{NAME}-calls", seconds=time_scale())
    one = PolledWatches(NAME, calls, read=counter.read, wait=counter.wait)
    yield one
    one.stop()
    counter.change()
    calls.close()
    one.join()


def test_a_sink_that_raises_keeps_no_other_from_its_state(
    counter: Counter, watches: PolledWatches, caplog: pytest.LogCaptureFixture
) -> None:
    heard = list[int]()

    def fail(_state: Snapshot) -> None:
        raise ValueError("of no kind")

    watches.add(TARGET, fail)
    watches.add(TARGET, lambda state: heard.append(state.order))
    eventually(lambda: heard == [0], what="the first state")
    counter.change()
    eventually(lambda: heard == [0, 1], what="the next state")
    assert "ValueError: of no kind" in caplog.text


def test_a_state_whose_read_failed_is_read_again_soon(
    counter: Counter, watches: PolledWatches
) -> None:
    heard = list[int]()
    watches.add(TARGET, lambda state: heard.append(state.order))
    eventually(lambda: heard == [0], what="the first state")
    # It waits long now: nothing is missing.
    eventually(lambda: max(counter.patience, default=0) > 1, what="a long wait")
    counter.patience.clear()
    counter.failures = 1
    counter.change()
    eventually(lambda: heard == [0, 1], what="the state that was not read at first")
    assert counter.patience[0] < 1


def test_a_sink_that_raised_hears_the_same_state_again_soon(
    counter: Counter, watches: PolledWatches
) -> None:
    heard, fails = list[int](), [True]

    def hear(state: Snapshot) -> None:
        if state.order == 1 and fails:
            fails.clear()
            raise ValueError("of no kind")
        heard.append(state.order)

    watches.add(TARGET, hear)
    eventually(lambda: heard == [0], what="the first state")
    eventually(lambda: max(counter.patience, default=0) > 1, what="a long wait")
    counter.patience.clear()
    counter.change()
    eventually(lambda: heard == [0, 1], what="the state that the sink raised at")
    assert counter.patience[0] < 1
