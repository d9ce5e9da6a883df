"""Futures: complete ones, mapped and copied ones, and many at once."""

import asyncio
import os
import threading
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    InvalidStateError,
    as_completed,
    wait,
)

import pytest

from kip30 import UnavailableError
from kip30.driver.kit.futures import (
    Completed,
    all_of,
    copy,
    fail,
    failed,
    gathered,
    mapped,
    succeed,
)


def test_a_completed_future_answers_like_any_other() -> None:
    future = Completed(3)
    seen: list[int] = []
    future.add_done_callback(lambda done: seen.append(done.result()))
    assert (future.result(0), future.exception(), future.done(), future.cancel()) == (
        3,
        None,
        True,
        False,
    )
    assert not future.cancelled()
    assert not future.running()
    assert seen == [3]


def test_completed_futures_can_be_waited_for_with_others() -> None:
    open_one: Future[int] = Future()
    ready = [Completed(number) for number in range(3)]
    done, pending = wait([*ready, open_one], return_when=FIRST_COMPLETED)
    assert (len(done), pending) == (3, {open_one})
    open_one.set_result(9)
    assert sorted(future.result() for future in as_completed([*ready, open_one])) == [0, 1, 2, 9]
    assert not Completed(0)._waiters


def test_completed_futures_share_nothing() -> None:
    one, two = Completed(1), Completed(2)
    assert one._condition is one._condition
    assert one._condition is not two._condition
    assert one._waiters is not two._waiters


@pytest.mark.parametrize("until", [ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION])
def test_only_completed_futures_are_done_at_once(until: str) -> None:
    ready = [Completed(number) for number in range(3)]
    assert wait(ready, timeout=0, return_when=until) == (set(ready), set())
    assert len(list(as_completed(ready, timeout=0))) == 3


def test_a_completed_future_takes_no_other_result() -> None:
    future = Completed(1)
    with pytest.raises(InvalidStateError):
        future.set_result(2)
    assert "FINISHED" in repr(future).upper()
    assert future.result() == 1


def test_a_raising_callback_of_a_completed_future_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Completed(0).add_done_callback(lambda done: 1 // done.result())
    assert "ZeroDivisionError" in caplog.text


def uses_futures_well() -> bool:
    future = Completed(1)
    future.add_done_callback(lambda done: done.result())
    return future.done() and future.exception() is None and len(wait([future], timeout=0).done) == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_uses_new_futures_while_the_parent_holds_the_lock_of_an_old_one() -> None:
    old = Completed(0)
    with old._condition:
        child = os.fork()
        if child == 0:
            # The main thread ends a child that hangs.
            threading.Thread(target=lambda: os._exit(0 if uses_futures_well() else 1)).start()
            threading.Event().wait(5)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_completed_future_can_be_awaited() -> None:
    async def main() -> int:
        return await asyncio.wrap_future(Completed(5))

    assert asyncio.run(main()) == 5


@pytest.mark.parametrize("late", [False, True])
def test_a_mapped_future_has_the_result_or_the_error(late: bool) -> None:  # noqa: FBT001
    source: Future[int] = Future() if late else Completed(2)
    doubled, broken = mapped(source, lambda x: 2 * x), mapped(source, lambda x: 1 // (x - 2))
    if late:
        source.set_result(2)
    assert doubled.result(1) == 4
    assert isinstance(broken.exception(1), ZeroDivisionError)


def test_a_mapped_future_passes_an_error_on() -> None:
    assert isinstance(mapped(failed(KeyError("a")), str).exception(1), KeyError)


def test_cancelling_a_mapped_future_leaves_the_source_alone() -> None:
    source: Future[int] = Future()
    target = mapped(source, str)
    assert target.cancel()
    source.set_result(1)
    assert target.cancelled()
    assert source.result() == 1


def test_the_first_end_of_a_future_counts() -> None:
    future: Future[int] = Future()
    succeed(future, 1)
    succeed(future, 2)
    fail(future, ValueError())
    assert future.result(0) == 1
    error = ValueError()
    fallen: Future[int] = Future()
    fail(fallen, error)
    succeed(fallen, 1)
    assert fallen.exception(0) is error


def test_results_are_gathered_in_their_order_whatever_comes_first() -> None:
    sources: list[Future[int]] = [Future() for _ in range(3)]
    found = gathered(sources)
    for number in (2, 0, 1):
        sources[number].set_result(number)
    assert found.result(0) == [0, 1, 2]
    assert gathered([]).result(0) == []


def test_any_number_of_answers_is_gathered_whichever_comes_last() -> None:
    sources: list[Future[int]] = [Future() for _ in range(5000)]
    found = gathered(sources)
    for source in reversed(sources):
        source.set_result(1)
    assert sum(found.result(0)) == 5000


def test_of_several_errors_the_first_in_order_is_gathered() -> None:
    first: Future[int] = Future()
    second: Future[int] = Future()
    found = gathered([first, second])
    second.set_exception(UnavailableError("second"))
    first.set_exception(UnavailableError("first"))
    with pytest.raises(UnavailableError, match="first"):
        found.result(0)


def test_all_are_done_however_they_ended() -> None:
    good: Future[int] = Future()
    bad: Future[int] = Future()
    ended = all_of([good, bad])
    bad.set_exception(UnavailableError("away"))
    assert not ended.done()
    good.set_result(1)
    assert ended.result(0) is None
    assert all_of([]).done()


def test_a_done_or_cancelled_future_is_left_unchanged() -> None:
    cancelled: Future[int] = Future()
    cancelled.cancel()
    copy(Completed(1), cancelled)
    fail(cancelled, UnavailableError("away"))
    assert cancelled.cancelled()
    answered: Future[int] = Future()
    copy(Completed(1), answered)
    fail(answered, UnavailableError("away"))
    assert answered.result(0) == 1


def test_a_cancelled_source_ends_the_future_it_is_copied_to() -> None:
    source: Future[int] = Future()
    target: Future[int] = Future()
    source.add_done_callback(lambda done: copy(done, target))
    source.cancel()
    with pytest.raises(CancelledError):
        target.result(0)
