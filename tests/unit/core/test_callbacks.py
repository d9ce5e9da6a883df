import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pytest

from kip30.driver.clock import SystemClock
from kip30.driver.kit.futures import ForwardingFuture
from kip30.metrics.definitions import CALLBACK_DURATION
from kip30.metrics.instruments import HistogramFamily, HistogramValue
from kip30.runtime.dispatcher import Dispatcher
from kip30.runtime.future_callbacks import Callbacks
from kip30_conformance.polling import eventually

pytestmark = pytest.mark.virtual_time

PATIENCE = 10.0


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    one = Dispatcher(SystemClock())
    yield one
    one.close(PATIENCE)


@pytest.fixture
def future(dispatcher: Dispatcher) -> ForwardingFuture[int]:
    return ForwardingFuture(Callbacks(dispatcher).call)


def test_a_callback_does_not_run_on_the_completing_thread(future: ForwardingFuture[int]) -> None:
    called: Future[tuple[threading.Thread, int]] = Future()
    future.add_done_callback(
        lambda done: called.set_result((threading.current_thread(), done.result()))
    )
    future.set_result(3)
    thread, result = called.result(PATIENCE)
    assert thread is not threading.current_thread()
    assert result == 3


def test_a_callback_added_to_a_done_future_runs_at_once(future: ForwardingFuture[int]) -> None:
    future.set_result(3)
    seen: list[threading.Thread] = []
    future.add_done_callback(lambda _: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


def test_callbacks_are_measured() -> None:
    durations, ended = HistogramFamily(CALLBACK_DURATION), threading.Event()
    dispatcher = Dispatcher(SystemClock(), durations=durations)
    callbacks = Callbacks(dispatcher)
    callbacks.call(partial(ended.wait, 0.2))
    callbacks.call(lambda: 1 // 0)
    eventually(lambda: _count(durations) == 2)
    callbacks.close()
    dispatcher.close(PATIENCE)
    callbacks.call(int)
    assert _count(durations) == 3


def _count(durations: HistogramFamily) -> int:
    (value,) = durations.samples().values()
    assert isinstance(value, HistogramValue)
    return sum(value.counts)


def test_a_callback_that_raises_is_logged(
    future: ForwardingFuture[int], caplog: pytest.LogCaptureFixture
) -> None:
    after = threading.Event()
    future.add_done_callback(lambda _: 1 // 0)
    future.add_done_callback(lambda _: after.set())
    future.set_result(0)
    assert after.wait(PATIENCE)
    eventually(lambda: "a callback of a future raised" in caplog.text)


def test_close_runs_pending_callbacks_and_later_ones_run_at_once() -> None:
    dispatcher = Dispatcher(SystemClock())
    callbacks = Callbacks(dispatcher)
    dispatcher.close(PATIENCE)
    seen: list[int] = []
    future: ForwardingFuture[int] = ForwardingFuture(callbacks.call)
    future.add_done_callback(lambda done: seen.append(done.result()))
    future.set_result(1)
    assert seen == []
    callbacks.close()
    late: ForwardingFuture[int] = ForwardingFuture(callbacks.call)
    late.add_done_callback(lambda done: seen.append(done.result()))
    late.set_result(2)
    assert seen == [1, 2]


def test_each_is_called_once(dispatcher: Dispatcher) -> None:
    for _ in range(200):
        callbacks = Callbacks(dispatcher)
        seen: list[int] = []
        for number in range(5):
            callbacks.call(partial(seen.append, number))
        callbacks.close()
        eventually(partial(_all_of, seen))


def _all_of(seen: list[int]) -> bool:
    return sorted(seen) == list(range(5))


@pytest.mark.real_time("an event loop waits in the selector of the system")
def test_it_can_be_awaited(future: ForwardingFuture[int]) -> None:
    async def main() -> int:
        asyncio.get_running_loop().call_soon(future.set_result, 7)
        return await asyncio.wrap_future(future)

    assert asyncio.run(main()) == 7
