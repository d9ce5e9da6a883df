"""Work that waits for its turn at a partition."""

import threading
from concurrent.futures import Future

import pytest

from kip30 import ClosedError, UnavailableError
from kip30.futures import Completed, failed
from kip30_backends.cassandra.turns import Turns

SECONDS = 5.0


def test_one_after_the_other() -> None:
    turns, begun, first = Turns(), list[str](), Future[str]()

    def work(name: str, answer: Future[str]) -> Future[str]:
        begun.append(name)
        return answer

    one = turns.take("here", lambda _: work("one", first), SECONDS)
    two = turns.take("here", lambda _: work("two", Completed("2")), SECONDS)
    elsewhere = turns.take("there", lambda _: work("there", Completed("3")), SECONDS)
    assert begun == ["one", "there"]
    first.set_result("1")
    assert [one.result(1), two.result(1), elsewhere.result(1)] == ["1", "2", "3"]
    assert begun == ["one", "there", "two"]


def test_a_failure_is_its_own() -> None:
    turns = Turns()
    assert type(turns.take("here", lambda _: failed(ClosedError()), SECONDS).exception()) is (
        ClosedError
    )
    assert turns.take("here", lambda _: Completed(1), SECONDS).result(1) == 1
    assert isinstance(turns.take("here", _raise, SECONDS).exception(), ZeroDivisionError)


def test_whose_turn_comes_too_late_does_nothing() -> None:
    turns, first, begun = Turns(), Future[int](), threading.Event()

    def begin(_: float) -> Future[int]:
        begun.set()
        return Completed(1)

    turns.take("here", lambda _: first, SECONDS)
    late = turns.take("here", begin, 0.0)
    first.set_result(0)
    with pytest.raises(UnavailableError):
        late.result(1)
    assert not begun.is_set()


def test_a_long_line_takes_no_deep_stack() -> None:
    turns, first = Turns(), Future[int]()
    turns.take("here", lambda _: first, SECONDS)
    waiting = [turns.take("here", lambda _: Completed(1), SECONDS) for _ in range(5000)]
    first.set_result(0)
    assert sum(one.result(1) for one in waiting) == 5000


def _raise(_: float) -> Future[int]:
    raise ZeroDivisionError
