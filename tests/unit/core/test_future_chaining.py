"""Requests that follow an answer: results, errors and futures that were cancelled."""

from concurrent.futures import CancelledError, Future

import pytest

from kip30 import OutcomeUnknownError, UnavailableError
from kip30.driver.kit.future_chaining import all_of, copy, gathered, or_unknown, otherwise, then
from kip30.driver.kit.futures import Completed, fail, failed


def test_a_step_follows_a_result_and_not_an_error() -> None:
    source: Future[int] = Future()
    doubled = then(source, lambda number: Completed(2 * number))
    assert not doubled.done()
    source.set_result(4)
    assert doubled.result(0) == 8
    passed_on = then(failed(UnavailableError("away")), lambda _: Completed(None))
    with pytest.raises(UnavailableError, match="away"):
        passed_on.result(0)


def test_an_error_of_a_step_fails_the_future() -> None:
    source: Future[int] = Future()
    divided = then(source, lambda number: Completed(1 // number))
    source.set_result(0)
    with pytest.raises(ZeroDivisionError):
        divided.result(0)


def test_only_the_refusal_that_is_meant_leads_elsewhere() -> None:
    refused: Future[int] = failed(UnavailableError("away"))
    assert otherwise(refused, UnavailableError, lambda: Completed(1)).result(0) == 1
    with pytest.raises(UnavailableError):
        otherwise(refused, KeyError, lambda: Completed(1)).result(0)
    assert otherwise(Completed(2), UnavailableError, lambda: Completed(1)).result(0) == 2


def test_a_look_that_fails_leaves_the_outcome_unknown() -> None:
    assert or_unknown(Completed(1)).result(0) == 1
    with pytest.raises(OutcomeUnknownError, match="away") as raised:
        or_unknown(failed(UnavailableError("away"))).result(0)
    assert isinstance(raised.value.__cause__, UnavailableError)


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
