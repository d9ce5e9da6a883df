"""The steps of a recipe in a thread."""

import threading
from concurrent.futures import Future

import pytest

from kip30.driver.clock import SystemClock
from kip30.recipes import steps
from kip30.recipes.steps import Await, Steps, run

PIECES = 20


class CountedLock:
    """A lock that counts how often it was acquired."""

    def __init__(self) -> None:
        self.times = 0
        self._lock = threading.RLock()
        self.release = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        self.times += 1
        return self._lock.acquire(blocking, timeout)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


def waiting(future: Future[None], seconds: float) -> Steps[bool]:
    yield Await((future,), SystemClock().now() + seconds)
    return future.done()


def test_a_caller_that_waits_takes_no_lock_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt might leave it held, and then nothing could complete the future."""
    monkeypatch.setattr(steps, "_LONGEST_WAIT", 0.002)
    lock, future = CountedLock(), Future[None]()
    future._condition = threading.Condition(lock)  # type: ignore[arg-type]
    assert not run(waiting(future, 0.002 * PIECES), SystemClock())
    assert lock.times < PIECES / 2


def test_a_caller_continues_when_the_future_is_done() -> None:
    future = Future[None]()
    completing = threading.Timer(0.05, future.set_result, (None,))
    completing.start()
    assert run(waiting(future, 60.0), SystemClock())
    completing.join()
    assert run(waiting(future, 60.0), SystemClock())
