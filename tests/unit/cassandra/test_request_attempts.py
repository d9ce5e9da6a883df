"""The attempts of a request, and its knowledge of them when a response arrives."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from kip30 import ClosedError, OutcomeUnknownError, UnavailableError
from kip30.driver.kit.timer import Timer
from kip30_backends.cassandra.calls import Answer, Call, ClusterNodes, RequestContext, TypedRequest
from kip30_backends.cassandra.client.connections import Row
from kip30_backends.cassandra.errors import Failure
from kip30_conformance.polling import eventually, time_scale

SECONDS = 5
DONE: Row = {"[applied]": True}


class Attempt(NamedTuple):
    """One attempt that was sent; the test responds to it."""

    answered: Callable[[Sequence[Row]], None]
    failed: Callable[[Failure], None]


class ByHand:
    """Stands in for the connections to nodes: nothing is sent, and tests respond."""

    def __init__(self) -> None:
        self.hosts = [object()]
        self.attempts = list[Attempt]()
        self.before_each: Callable[[], None] = lambda: None
        self.on_each: Callable[[Attempt], object] = lambda _attempt: None

    def nodes(self) -> list[object]:
        self.before_each()
        return self.hosts

    def known(self) -> list[object]:
        return []

    def send(self, _statement: object, _node: object, *callbacks: Any) -> None:
        self.attempts.append(Attempt(*callbacks))
        self.on_each(self.attempts[-1])


@pytest.fixture
def connections() -> ByHand:
    return ByHand()


@pytest.fixture
def context(connections: Any) -> Iterator[RequestContext]:
    timer = Timer("test-call")
    yield RequestContext(
        connections, ClusterNodes(connections.nodes), timer, lambda go_on: go_on(), "k"
    )
    timer.stop()


@pytest.mark.parametrize(
    ("kind", "is_last"), [("WriteTimeout", True), ("ConnectionShutdown", False)]
)
def test_an_attempt_may_be_applied_later_unless_the_node_gave_it_up(
    context: RequestContext, connections: ByHand, kind: str, *, is_last: bool
) -> None:
    call = _call(context)
    call.start()
    connections.attempts[0].failed(Failure(kind, ""))
    eventually(lambda: len(connections.attempts) == 2, what="it is sent again")
    connections.attempts[1].answered([DONE])
    answer = call.result(SECONDS * time_scale())
    assert not answer.is_sure
    assert answer.is_last == is_last


def test_a_request_closed_before_it_is_sent_is_not_sent(
    context: RequestContext, connections: ByHand
) -> None:
    call = _call(context)
    connections.before_each = call.close
    call.start()
    assert type(call.exception(SECONDS * time_scale())) is ClosedError
    assert not connections.attempts


def test_a_request_given_up_before_it_is_sent_is_not_sent(
    context: RequestContext, connections: ByHand
) -> None:
    call = _call(context)
    connections.before_each = lambda: call._give_up_if(0)
    call.start()
    assert type(call.exception(SECONDS * time_scale())) is UnavailableError
    assert not connections.attempts


def test_giving_up_an_earlier_attempt_does_not_end_a_later_attempt(
    context: RequestContext, connections: ByHand
) -> None:
    call = _call(context)
    call.start()
    call._give_up_if(0)
    assert not call.done()
    connections.attempts[0].answered([DONE])
    assert call.result(SECONDS * time_scale()).applied


def test_a_response_during_send_leaves_no_timer(
    context: RequestContext, connections: ByHand
) -> None:
    connections.on_each = lambda attempt: attempt.answered([DONE])
    call = _call(context)
    call.start()
    assert call.result(SECONDS * time_scale()).applied
    assert not _timers(context)


def test_a_failure_during_send_leaves_only_the_timer_of_the_next_attempt(
    context: RequestContext, connections: ByHand
) -> None:
    connections.on_each = lambda attempt: (
        None
        if len(connections.attempts) == 2
        else attempt.failed(Failure("ConnectionShutdown", ""))
    )
    connections.hosts = [object(), object()]
    call = _call(context)
    call.start()
    assert len(connections.attempts) == 2
    assert len(_timers(context)) == 1
    connections.attempts[1].answered([DONE])
    assert call.result(SECONDS * time_scale()).applied
    assert not _timers(context)


def test_a_last_attempt_does_not_make_a_never_sent_write_unknown(
    context: RequestContext, connections: ByHand
) -> None:
    seconds = 2 * time_scale()
    connections.on_each = lambda attempt: context.timer.after(
        0.08 * seconds, lambda: attempt.failed(Failure("NeverSent", "down"))
    )
    call = _call(context, seconds)
    call.start()
    assert type(call.exception(SECONDS * time_scale())) is UnavailableError


@pytest.mark.parametrize(
    ("kind", "error"), [("NeverSent", ClosedError), ("WriteTimeout", OutcomeUnknownError)]
)
def test_close_reports_an_unknown_outcome_only_if_the_write_was_sent(
    context: RequestContext, connections: ByHand, kind: str, error: type[Exception]
) -> None:
    call = _call(context)
    call.start()
    connections.before_each = call.close
    connections.attempts[0].failed(Failure(kind, ""))
    assert type(call.exception(SECONDS * time_scale())) is error
    assert len(connections.attempts) == 1


def _timers(context: RequestContext) -> list[object]:
    return [due for _, _, due in list(context.timer._due) if due.action is not None]


def _call(context: RequestContext, seconds: float = SECONDS * time_scale()) -> Call[Answer]:
    ask = TypedRequest[Answer]("statement", lambda answer: answer, writes=True)
    return Call(context, ask, time.monotonic() + seconds)
