"""Outcomes of many requests in one become futures of their own."""

from concurrent.futures import Future, wait

import pytest

from kip30.driver.kit.futures import Completed, each

_Outcomes = list[int | Exception]


@pytest.mark.parametrize("is_there", [True, False])
def test_each_outcome_has_a_future(*, is_there: bool) -> None:
    outcomes: _Outcomes = [1, ValueError("two"), 3]
    done: Future[_Outcomes] = Completed(outcomes) if is_there else Future()
    first, second, third = each(done, 3)
    if not is_there:
        assert not first.done()
        done.set_result(outcomes)
    assert (first.result(0), third.result(0)) == (1, 3)
    assert isinstance(second.exception(0), ValueError)


def test_an_error_is_that_of_all() -> None:
    done: Future[_Outcomes] = Future()
    answers = each(done, 2)
    done.set_exception(ValueError())
    assert all(isinstance(answer.exception(0), ValueError) for answer in answers)


def test_one_that_was_cancelled_stays_so_and_keeps_no_waiter() -> None:
    done: Future[_Outcomes] = Future()
    first, second = each(done, 2)
    assert first.cancel()
    done.set_result([1, 2])
    assert wait([first, second], 0).not_done == set()
    assert first.cancelled()
    assert second.result(0) == 2
