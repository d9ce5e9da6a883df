"""A close that happens once, for any number of callers and calls."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kip30.driver.kit.lifecycle import CloseOnce, on_thread_of
from kip30_conformance.polling import time_scale

pytestmark = pytest.mark.virtual_time

SOON = 10
OWN = "own"


@pytest.fixture
def ending() -> CloseOnce:
    return CloseOnce(on_thread_of(OWN))


def test_one_of_many_does_it_and_all_wait(ending: CloseOnce) -> None:
    begun, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def end() -> None:
        begun.set()
        ended.append(may_end.wait(SOON * time_scale()))

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(ending.once, end) for _ in range(8)]
        assert begun.wait(SOON * time_scale())
        assert not any(call.done() for call in calls)
        may_end.set()
        assert all(call.result(SOON * time_scale()) is None for call in calls)
    assert ended == [True]


def test_an_awaited_thread_does_not_wait_for_the_close(ending: CloseOnce) -> None:
    def end() -> None:
        own = threading.Thread(target=ending.once, args=(end,), name=f"{OWN}-1")
        own.start()
        own.join(SOON * time_scale())
        assert not own.is_alive()

    ending.once(end)


def test_later_callers_do_not_wait_for_a_failed_close(ending: CloseOnce) -> None:
    def end() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        ending.once(end)
    ending.once(end)


def test_a_cancelled_close_never_runs(ending: CloseOnce) -> None:
    ending.forgo()
    ending.once(lambda: pytest.fail("it came"))
