"""When tasks that wait get another thread, by looks at the clock and at the processor."""

from types import SimpleNamespace

import pytest

from kip30.runtime import starvation
from kip30.runtime.starvation import Starvation

SHORT = 2**-8  # seconds; sums of it are exact
LONG = 1.0
IDLE = 0.0
COMPUTING = 1.0


class Looks:
    """Looks at tasks that no worker takes, at regular intervals."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.used = 100.0
        times = SimpleNamespace(monotonic=lambda: self.now, process_time=lambda: self.used)
        monkeypatch.setattr(starvation, "time", times)
        self.starvation = Starvation()

    def until_needed(self, seconds: float, share: float, every: float = 1.0) -> int:
        """Return how many looks there are until they need a worker.

        Args:
            seconds: How long tasks may wait.
            share: How much of a processor the process uses meanwhile.
            every: The time between looks, in that of *seconds*.
        """
        assert not self.starvation.needs_worker(1, seconds)
        for look in range(1, 100):
            self.now += every * seconds
            self.used += share * every * seconds
            if self.starvation.needs_worker(1, seconds):
                return look
        raise AssertionError("never")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_tasks_that_wait_get_a_worker_at_once(looks: Looks) -> None:
    assert looks.until_needed(SHORT, IDLE) == 1


def test_they_get_one_late_while_the_process_computes(looks: Looks) -> None:
    """Another worker would only wait for the interpreter, too."""
    assert looks.until_needed(SHORT, COMPUTING) == 11


def test_they_get_one_late_if_the_looks_are_late(looks: Looks) -> None:
    assert looks.until_needed(SHORT, IDLE, every=3.0) == 11


def test_no_interpreter_is_waited_for_as_long_as_a_loop_waits(looks: Looks) -> None:
    """Among those that wait are the clocks of leases."""
    assert looks.until_needed(LONG, COMPUTING) == 1


def test_a_task_that_was_taken_begins_the_wait_anew(looks: Looks) -> None:
    assert not looks.starvation.needs_worker(1, SHORT)
    looks.now += SHORT
    assert not looks.starvation.needs_worker(2, SHORT)
    looks.now += SHORT
    assert looks.starvation.needs_worker(2, SHORT)
