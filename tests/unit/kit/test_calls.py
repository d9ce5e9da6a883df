"""Futures that are sent on demand, calls of a client that blocks, and requests that gather."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from kip30.driver.kit.batch_queue import BatchQueue
from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.gate import Gate
from kip30.errors import ClosedError, LifecycleError, UnavailableError
from kip30_conformance.polling import eventually, time_scale

NAME = "kip30-test-calls"
SECONDS = 30


@pytest.fixture
def calls() -> Iterator[BlockingCalls]:
    one = BlockingCalls(NAME, seconds=SECONDS * time_scale())
    yield one
    one.close()


def _thread(_until: float) -> str:
    return threading.current_thread().name


def test_a_caller_that_waits_does_the_work(calls: BlockingCalls) -> None:
    assert calls.on_demand(_thread).result() == threading.current_thread().name
    assert calls.on_demand(_thread).exception() is None
    assert not _pool_threads()


def test_a_caller_with_less_time_than_the_call_leaves_it_to_the_pool(calls: BlockingCalls) -> None:
    assert calls.on_demand(_thread).result(SECONDS * time_scale() / 2) == NAME


def test_a_call_that_is_polled_or_has_a_callback_is_done_by_the_pool(calls: BlockingCalls) -> None:
    polled, names = calls.on_demand(_thread), list[str]()
    eventually(polled.done)
    assert polled.result() == NAME
    calls.on_demand(_thread).add_done_callback(lambda done: names.append(done.result()))
    eventually(lambda: names == [NAME])


def test_a_call_that_no_caller_wants_is_not_begun(calls: BlockingCalls) -> None:
    begun = threading.Event()
    calls.on_demand(lambda _: begun.set())
    calls.begin(_thread).result()
    assert not begun.is_set()


def test_a_cancelled_call_is_not_begun(calls: BlockingCalls) -> None:
    begun = threading.Event()
    call = calls.on_demand(lambda _: begun.set())
    assert call.cancel()
    call.done()
    calls.begin(_thread).result()
    assert not begun.is_set()


def test_the_deadline_counts_from_the_call(calls: BlockingCalls) -> None:
    before = time.monotonic()
    call = calls.on_demand(lambda until: until)
    assert (
        before + SECONDS * time_scale()
        <= call.result()
        <= time.monotonic() + SECONDS * time_scale()
    )


def test_an_error_of_the_call_fails_its_future(calls: BlockingCalls) -> None:
    def fail(_until: float) -> None:
        raise UnavailableError("no answer")

    assert isinstance(calls.begin(fail).exception(), UnavailableError)


def test_an_interrupted_caller_is_interrupted(calls: BlockingCalls) -> None:
    def interrupt(_until: float) -> None:
        raise KeyboardInterrupt

    call = calls.on_demand(interrupt)
    with pytest.raises(KeyboardInterrupt):
        call.result()
    assert isinstance(call.exception(), KeyboardInterrupt)


def test_close_waits_for_what_has_begun_and_refuses_the_rest() -> None:
    calls, begun, go = (
        BlockingCalls(NAME, seconds=SECONDS * time_scale()),
        threading.Event(),
        threading.Event(),
    )

    def hold(_until: float) -> None:
        begun.set()
        assert go.wait(SECONDS * time_scale())

    waiting = calls.begin(hold)
    assert begun.wait(SECONDS * time_scale())
    closing = threading.Thread(target=calls.close)
    closing.start()
    eventually(lambda: calls.gate.is_closed)
    assert isinstance(calls.on_demand(_thread).exception(), ClosedError)
    assert not waiting.done()
    go.set()
    closing.join(SECONDS * time_scale())
    assert waiting.done()
    assert not _pool_threads()


def test_a_gate_is_shut_in_a_forked_child() -> None:
    gate = Gate()
    gate.check()
    pid = os.fork()
    if not pid:
        os._exit(0 if isinstance(gate.refusal(), LifecycleError) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    gate.check()


def test_a_forked_child_does_not_send_what_its_parent_has_not_sent_yet(
    calls: BlockingCalls,
) -> None:
    call = calls.on_demand(_thread)
    pid = os.fork()
    if not pid:
        os._exit(0 if isinstance(call.exception(), LifecycleError) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert call.result() == threading.current_thread().name


def test_items_gather_while_requests_are_under_way() -> None:
    queue: BatchQueue[int] = BatchQueue(most=3, under_way=2)
    assert [queue.add(number) for number in range(8)] == [True, True, *[False] * 6]
    assert [queue.take() for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7], []]
    assert queue.add(8)
    assert queue.take() == [8]
    assert [queue.take(), queue.take()] == [[], []]
    assert [queue.add(9), queue.add(10), queue.add(11)] == [True, True, False]


def _pool_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == NAME]
