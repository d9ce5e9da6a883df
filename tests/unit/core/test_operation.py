"""Operations of several requests: who sends each of them, errors, timeouts, interruptions."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

import pytest
from typing_extensions import override

from kip30 import OutcomeUnknownError, UnavailableError
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.lazy_future import LazyFuture
from kip30.driver.kit.operation import OperationFuture, Steps, begun, settling


class _Request(LazyFuture[int]):
    """A request that notes the thread that sends it, and whether that thread waits for it."""

    def __init__(self, answer: int | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.sent: list[tuple[threading.Thread, str]] = []

    @override
    def send(self) -> None:
        self._note("sends on")

    @override
    def send_here(self, timeout: float | None) -> None:
        self._note("waits")

    def _note(self, how: str) -> None:
        self.sent.append((threading.current_thread(), how))
        if self.answer is not None:
            self.set_result(self.answer)


def _sum(*requests: Future[int]) -> Steps[int]:
    total = 0
    for request in requests:
        total += yield request
    return total


def test_nothing_is_sent_before_a_caller_wants_the_result() -> None:
    request = _Request(1)
    operation = OperationFuture(_sum(request))
    assert not request.sent
    assert operation.result(0) == 1


def test_a_caller_that_waits_sends_all_requests_itself() -> None:
    requests = [_Request(1), _Request(2), _Request(4)]
    assert OperationFuture(_sum(*requests)).result(5) == 7
    assert [one.sent for one in requests] == [[(threading.current_thread(), "waits")]] * 3


@pytest.mark.parametrize(
    "want",
    [
        OperationFuture[int].done,
        lambda operation: operation.add_done_callback(lambda _: None),
        lambda operation: operation.start(),
    ],
    ids=["polls", "adds a callback", "begins"],
)
def test_without_a_waiting_caller_the_thread_of_an_answer_goes_on(
    want: Callable[[OperationFuture[int]], object],
) -> None:
    first, second = _Request(), _Request()
    operation = OperationFuture(_sum(first, second))
    want(operation)
    assert [how for _, how in first.sent] == ["sends on"]
    assert not second.sent
    answering = threading.Thread(target=first.set_result, args=[1])
    answering.start()
    answering.join()
    assert second.sent == [(answering, "sends on")]
    second.set_result(2)
    assert operation.result(0) == 3


def test_two_callers_run_the_generator_once() -> None:
    request = _Request()
    operation = begun(_sum(request))
    waiting = threading.Thread(target=operation.exception)
    waiting.start()
    request.set_result(1)
    waiting.join()
    assert operation.result(0) == 1
    assert len(request.sent) == 1


def test_an_operation_goes_on_when_its_caller_has_waited_long_enough() -> None:
    first, second = _Request(), _Request(2)
    operation = OperationFuture(_sum(first, second))
    with pytest.raises(TimeoutError):
        operation.result(0.01)
    first.set_result(1)
    assert operation.result(5) == 3


def test_an_error_of_a_request_is_raised_where_it_was_yielded() -> None:
    def steps() -> Steps[str]:
        try:
            yield failed(UnavailableError("away"))
        except UnavailableError as error:
            other: str = yield Completed("other")
            return f"{error}: {other}"
        return "none"

    assert OperationFuture(steps()).result(0) == "away: other"
    assert begun(steps()).result(0) == "away: other"
    unhandled = OperationFuture(_sum(failed(UnavailableError("away"))))
    with pytest.raises(UnavailableError, match="away"):
        unhandled.result(0)


def test_an_error_of_the_generator_is_that_of_the_operation() -> None:
    operation = OperationFuture(_sum(Completed(1), Completed("no number")))  # type: ignore[arg-type]
    assert isinstance(operation.exception(0), TypeError)


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_request_that_was_cancelled_ends_the_operation(*, is_waited_for: bool) -> None:
    request: Future[int] = Future()
    request.cancel()
    operation = OperationFuture(_sum(request))
    if not is_waited_for:
        operation.start()
    with pytest.raises(CancelledError):
        operation.result(0)


def test_a_cancelled_operation_goes_on_with_what_follows() -> None:
    first, second = _Request(), _Request(2)
    operation = begun(_sum(first, second))
    assert operation.cancel()
    first.set_result(1)
    assert second.sent
    assert operation.cancelled()


class _InterruptedError(BaseException):
    """What a signal's handler raises."""


class _InterruptedRequest(_Request):
    """A request whose sender is interrupted while it waits."""

    @override
    def send_here(self, timeout: float | None) -> None:
        raise _InterruptedError


def test_an_operation_goes_on_when_its_caller_is_interrupted_while_it_waits() -> None:
    first, second = _InterruptedRequest(), _Request(2)
    operation = OperationFuture(_sum(first, second))
    with pytest.raises(_InterruptedError):
        operation.result()
    first.set_result(1)
    assert operation.result(5) == 3


def test_an_operation_ends_when_its_generator_is_interrupted() -> None:
    def steps() -> Steps[int]:
        yield Completed(1)
        raise _InterruptedError

    operation = OperationFuture(steps())
    with pytest.raises(_InterruptedError):
        operation.result()
    with pytest.raises(_InterruptedError):
        operation.result(5)


def test_a_failed_look_leaves_the_outcome_of_a_write_unknown() -> None:
    def steps(look: Future[int]) -> Steps[int]:
        with settling():
            found: int = yield look
        return found

    assert OperationFuture(steps(Completed(1))).result(0) == 1
    with pytest.raises(OutcomeUnknownError, match="away") as raised:
        OperationFuture(steps(failed(UnavailableError("away")))).result(0)
    assert isinstance(raised.value.__cause__, UnavailableError)


def test_thousands_of_answers_one_after_the_other_nest_nothing() -> None:
    asked: list[Future[int]] = []

    def steps() -> Steps[int]:
        total = 0
        for _ in range(10_000):
            asked.append(Future())
            total += yield asked[-1]
        return total

    operation = begun(steps())
    while not operation.done():
        asked[-1].set_result(1)
    assert operation.result(0) == 10_000


def test_thousands_of_answers_that_are_there_nest_nothing() -> None:
    answers = [Completed(1)] * 10_000
    assert OperationFuture(_sum(*answers)).result(5) == 10_000
    assert begun(_sum(*answers)).result(5) == 10_000
