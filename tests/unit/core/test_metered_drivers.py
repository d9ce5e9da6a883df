"""Requests are measured without a change of when, and on which thread, they are sent."""

import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest
from typing_extensions import override

from kip30 import (
    ClosedError,
    KeyExistsError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UsageError,
)
from kip30.driver.kit.futures import Completed, ForwardingFuture, failed
from kip30.driver.kit.lazy_future import LazyFuture
from kip30.driver.records import HeldByOther, Snapshot
from kip30.metrics.instruments import HistogramValue
from kip30.runtime.metered_drivers import RequestTimes

pytestmark = pytest.mark.virtual_time

PATIENCE = 0.5


class Lazy(LazyFuture[str]):
    """Notes who sends it: a caller that waits, or another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    @override
    def send(self) -> None:
        self.sent.append("elsewhere")
        self.set_result("answer")

    @override
    def send_here(self, timeout: float | None) -> None:
        self.sent.append("here")
        self.set_result("answer")


@pytest.fixture
def times() -> RequestTimes:
    return RequestTimes(PATIENCE)


def counted(times: RequestTimes) -> dict[tuple[str, ...], int]:
    """Return how many requests were counted, by operation and outcome."""
    return {
        labels: sum(value.counts)
        for labels, value in times.durations.samples().items()
        if isinstance(value, HistogramValue)
    }


def test_a_lazy_request_is_sent_by_the_caller_that_waits(times: RequestTimes) -> None:
    lazy = Lazy()
    future = times.measure("get", lambda: lazy)
    assert future is lazy
    assert lazy.sent == []
    assert not counted(times)
    assert future.result() == "answer"
    assert lazy.sent == ["here"]
    assert counted(times) == {("get", "ok"): 1}


def test_a_lazy_request_that_fails_unsent_is_not_sent(times: RequestTimes) -> None:
    lazy = Lazy()
    times.measure("get", lambda: lazy)
    lazy.fail(UnavailableError("no connection"))
    assert lazy.sent == []
    assert counted(times) == {("get", "unavailable"): 1}


def test_a_request_lasts_until_its_answer(times: RequestTimes) -> None:
    future: Future[str] = Future()
    times.measure("get", lambda: future)
    threading.Event().wait(0.2)
    future.set_result("answer")
    assert counted(times) == {("get", "ok"): 1}
    (value,) = times.durations.samples().values()
    assert isinstance(value, HistogramValue)
    assert 0.2 <= value.total < 5


def test_a_forwarded_future_is_counted_where_it_completes(times: RequestTimes) -> None:
    forwarded: list[Any] = []
    future: Future[str] = ForwardingFuture(forwarded.append)
    times.measure("get", lambda: future)
    future.set_result("answer")
    assert forwarded == []
    assert counted(times) == {("get", "ok"): 1}


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Completed(None), "ok"),
        (Completed([]), "ok"),
        (Completed(HeldByOther(Snapshot(1, {}))), "refused"),
        (failed(KeyExistsError("it exists")), "refused"),
        (failed(StoreError("damaged")), "refused"),
        (failed(UsageError("wrong")), "refused"),
        (failed(UnavailableError("away")), "unavailable"),
        (failed(OutcomeUnknownError("lost")), "unknown"),
        (failed(ValueError("a defect")), "unknown"),
    ],
)
def test_an_answer_has_one_outcome(
    times: RequestTimes, answer: Future[object], outcome: str
) -> None:
    times.measure("claim", lambda: answer)
    assert counted(times) == {("claim", outcome): 1}


def test_the_close_of_the_client_is_no_outcome(times: RequestTimes) -> None:
    times.measure("put", lambda: failed(ClosedError("closed")))
    assert not counted(times)


@pytest.mark.parametrize(("operation", "outcome"), [("get", "unavailable"), ("put", "unknown")])
@pytest.mark.parametrize("is_late", [True, False])
def test_a_cancelled_request_counts_if_it_is_late(
    times: RequestTimes, operation: str, outcome: str, *, is_late: bool
) -> None:
    future: Future[str] = Future()
    times.measure(operation, lambda: future)
    if is_late:
        threading.Event().wait(PATIENCE)
    future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert counted(times) == ({(operation, outcome): 1} if is_late else {})


def test_each_of_many_requests_is_counted(times: RequestTimes) -> None:
    answers = [Completed(None), failed(KeyExistsError("it exists"))]
    assert times.measure_each(["put", "put"], lambda: answers) == answers
    assert counted(times) == {("put", "ok"): 1, ("put", "refused"): 1}


def test_only_an_answer_shows_that_the_store_is_there(times: RequestTimes) -> None:
    before = times.seen_at
    threading.Event().wait(0.2)
    times.measure("get", lambda: failed(UnavailableError("away")))
    assert times.seen_at == before
    times.measure("get", lambda: failed(KeyExistsError("it exists")))
    assert times.seen_at >= before + 0.2
