"""The decision to start another thread: what a busy process shows, and what it does not."""

import pytest

from kip30.runtime import starvation
from kip30.runtime.starvation import Starvation

PAUSE = 2**-8  # sums of it are exact


class Time:
    """The clocks of a process."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used

    def passes(self, seconds: float, *, share: float) -> None:
        self.now += seconds
        self.used += share * seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(starvation, "time", made)
    return made


def looks(time: Time, made: Starvation, *, share: float) -> int:
    """Return after how many pauses without progress there is another worker."""
    made.needs_worker(7, PAUSE)
    for number in range(1, 100):
        time.passes(PAUSE, share=share)
        if made.needs_worker(7, PAUSE):
            return number
    raise AssertionError("never")


@pytest.mark.parametrize(("share", "number"), [(0.0, 1), (0.2, 1), (0.3, 11), (7.0, 11)])
def test_a_process_that_computes_gets_a_worker_later(time: Time, share: float, number: int) -> None:
    assert looks(time, Starvation(), share=share) == number


def test_only_what_was_computed_since_the_last_look_counts(time: Time) -> None:
    made = Starvation()
    made.needs_worker(7, PAUSE)
    time.passes(PAUSE, share=1.0)
    assert not made.needs_worker(7, PAUSE)
    time.passes(PAUSE, share=0.0)
    assert made.needs_worker(7, PAUSE)


def test_tasks_that_wait_again_begin_again(time: Time) -> None:
    made = Starvation()
    made.needs_worker(7, PAUSE)
    made.end()
    time.passes(PAUSE, share=0.0)
    assert not made.needs_worker(7, PAUSE)


def test_a_long_pause_needs_a_worker_although_the_process_computes(time: Time) -> None:
    made = Starvation()
    made.needs_worker(7, 1.0)
    time.passes(1.0, share=1.0)
    assert made.needs_worker(7, 1.0)


def test_late_looks_show_a_busy_processor(time: Time) -> None:
    made, late = Starvation(), 0
    made.needs_worker(7, PAUSE)
    while not made.needs_worker(7, PAUSE):
        time.passes(3 * PAUSE, share=0.0)
        late += 1
    assert late == 11


def test_a_task_that_was_taken_begins_the_wait_anew(time: Time) -> None:
    made = Starvation()
    made.needs_worker(7, PAUSE)
    time.passes(PAUSE, share=0.0)
    assert not made.needs_worker(8, PAUSE)
    time.passes(PAUSE, share=0.0)
    assert made.needs_worker(8, PAUSE)
