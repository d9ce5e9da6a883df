"""Trying again and again."""

from concurrent.futures import Future

import pytest

from kip30 import UnavailableError
from kip30.driver.kit.futures import Completed, failed
from kip30_backends.cassandra.claims import insist

MANY = 5000


def test_until_there_is_something() -> None:
    answers = iter([None, None, "it"])
    assert insist(lambda: Completed(next(answers))).result(1) == "it"


def test_a_failure_is_the_end() -> None:
    with pytest.raises(UnavailableError):
        insist(lambda: failed(UnavailableError())).result(1)


def test_thousands_of_times_take_no_deep_stack() -> None:
    asked = list[Future[str | None]]()

    def once() -> Future[str | None]:
        asked.append(Future())
        return asked[-1]

    got = insist(once)
    for _ in range(MANY):
        asked[-1].set_result(None)
    asked[-1].set_result("it")
    assert got.result(1) == "it"
    assert len(asked) == MANY + 1
