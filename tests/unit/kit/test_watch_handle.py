"""The handle of a watch: states in order, one at a time, and none once it is closed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kip30.driver.kit.watch import WatchHandle
from kip30.driver.records import Kind, Snapshot, Target
from kip30_conformance.polling import time_scale

TARGET = Target(Kind.VALUE, "n", "k")


def _state(order: int) -> Snapshot:
    return Snapshot(order, {})


def test_a_state_is_delivered_once_and_never_an_older_one() -> None:
    heard = list[int]()
    watch = WatchHandle(TARGET, lambda state: heard.append(state.order), lambda _: None)
    assert [watch.deliver(_state(order)) for order in (0, 2, 2, 1, 3)] == [
        *(True, True, False, False, True)
    ]
    assert heard == [0, 2, 3]


def test_it_is_forgotten_once_and_delivers_nothing_more() -> None:
    heard, forgotten = list[int](), list[WatchHandle]()
    watch = WatchHandle(TARGET, lambda state: heard.append(state.order), forgotten.append)
    watch.close()
    watch.close()
    assert not watch.deliver(_state(1))
    assert (heard, forgotten) == ([], [watch])


def test_close_returns_after_the_sink() -> None:
    called, go, ended = threading.Event(), threading.Event(), threading.Event()

    def sink(_state: Snapshot) -> None:
        called.set()
        assert go.wait(10 * time_scale())
        ended.set()

    watch = WatchHandle(TARGET, sink, lambda _: None)
    with ThreadPoolExecutor(2) as pool:
        delivered = pool.submit(watch.deliver, _state(1))
        assert called.wait(10 * time_scale())
        closed = pool.submit(watch.close)
        assert not closed.done()
        go.set()
        closed.result()
        assert ended.is_set()
        assert delivered.result()


def test_the_sink_may_close_it() -> None:
    heard = list[int]()

    def sink(state: Snapshot) -> None:
        heard.append(state.order)
        watch.close()

    watch = WatchHandle(TARGET, sink, lambda _: None)
    assert watch.deliver(_state(1))
    assert not watch.deliver(_state(2))
    assert heard == [1]


def test_a_state_that_the_sink_raised_at_is_delivered_again() -> None:
    heard = list[int]()

    def sink(state: Snapshot) -> None:
        heard.append(state.order)
        if len(heard) == 1:
            raise ValueError("of no kind")

    watch = WatchHandle(TARGET, sink, lambda _: None)
    with pytest.raises(ValueError, match="of no kind"):
        watch.deliver(_state(1))
    assert watch.deliver(_state(1))
    assert heard == [1, 1]
