"""One operation's requests to the servers, one after the other, all by one deadline.

A request is retried only if it is certain that nothing was done.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from kip30.driver.kit.time_left import share
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.consul.client.endpoints import Agent, Endpoints
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.errors import (
    UNTRUSTED,
    Failure,
    RequestFailedError,
    is_final,
    is_lost,
    is_unauthorized,
    translate,
    was_never_done,
)

T = TypeVar("T")

_PAUSE = 0.05
_UNEXPECTED_ANSWER = "not an answer of Consul: is the address that of its HTTP port?"
_OK = frozenset({200})
OK_OR_ABSENT = frozenset({200, 404})
OK_OR_CONFLICT = frozenset({200, 409})


class TypedRequest(NamedTuple, Generic[T]):
    """A request, and how to read its answer; *answers* are the statuses that *read* understands."""

    method: str
    target: str
    read: Callable[[Answer], T]
    body: bytes = b""
    writes: bool = False
    answers: frozenset[int] = _OK


class OperationRequests:
    """Sends requests to the server in use, until *until*. One thread uses it at a time.

    Attributes:
        answered_by: The server that gave the last answer.
    """

    def __init__(self, endpoints: Endpoints, closing: threading.Event, until: float) -> None:
        """End at *until*, a time of `time.monotonic`, or when *closing* is set."""
        self._endpoints = endpoints
        self._closing = closing
        self.until = until
        self.answered_by: Agent | None = None

    def ask(self, ask: TypedRequest[T]) -> T:
        """Send the request, and return its answer.

        Raises:
            DefiniteError: Nothing was done.
            OutcomeUnknownError: The request writes, and no answer came.
        """
        tried, before = 0, None
        while True:
            agent = self._endpoints.current
            token = agent.http.token.header
            tried += 1
            try:
                answer = self._sent(ask, agent, self._backoff(tried, writes=ask.writes))
            except RequestFailedError as error:
                failure = error.failure
                if is_unauthorized(failure) and self._may_use_other(agent, token):
                    tried -= 1  # the server works
                    continue
                if is_lost(failure):
                    self._endpoints.leave(agent)
                if not self._may_repeat(ask, failure, tried):
                    raise self._translated(ask, agent, failure.after(before)) from error
                before = failure.after(before)
                # Other servers are tried at once; the same ones only after a backoff.
                if tried >= len(self._endpoints):
                    self._closing.wait(_PAUSE)
            else:
                self.answered_by = agent
                return answer

    def pause(self, seconds: float) -> None:
        """Wait *seconds* before a retry; nothing was done so far.

        Raises:
            ClosedError: Closed meanwhile.
            UnavailableError: There is no time left.
        """
        if self._closing.wait(min(seconds, max(0.0, self.left))):
            raise ClosedError("closed while the operation was under way")
        if self.left <= 0:
            raise UnavailableError("the store did not take the operation in time")

    def refusal(self, failure: Failure) -> Kip30Error:
        """Return the error for *failure*, which the last answer contained."""
        server = self.answered_by.server if self.answered_by is not None else "no server"
        return translate(failure, wrote=False, server=server)

    @property
    def left(self) -> float:
        """Seconds left until the deadline."""
        return self.until - time.monotonic()

    def _sent(self, ask: TypedRequest[T], agent: Agent, until: float) -> T:
        answer = agent.http.send(ask.method, ask.target, ask.body, until)
        if answer.status not in ask.answers:
            said = answer.body.decode("utf-8", "backslashreplace")
            raise RequestFailedError(Failure(answer.status, said))
        return understood(answer, ask.read)

    def _backoff(self, tried: int, *, writes: bool) -> float:
        """Return the deadline for one server: less than all the time while there are others."""
        return time.monotonic() + share(self.left, len(self._endpoints) - tried, writes=writes)

    def _may_use_other(self, agent: Agent, token: str) -> bool:
        """Return whether there is time for another token than the refused one, and there is one."""
        return self.left > _PAUSE and agent.http.token.replaces(token)

    def _may_repeat(self, ask: TypedRequest[T], failure: Failure, tried: int) -> bool:
        """Return whether a retry has enough time, is safe, and may help."""
        if self._closing.is_set() or self.left <= _PAUSE:
            return False
        if failure.status == UNTRUSTED:
            return tried < len(self._endpoints)
        if is_final(failure):
            return False
        return was_never_done(failure) or (is_lost(failure) and not ask.writes)

    def _translated(self, ask: TypedRequest[T], agent: Agent, failure: Failure) -> Kip30Error:
        return translate(failure, wrote=ask.writes, server=agent.server)


def understood(answer: Answer, read: Callable[[Answer], T]) -> T:
    """Return what *read* makes of *answer*.

    Raises:
        RequestFailedError: Consul does not give such an answer.
    """
    try:
        return read(answer)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RequestFailedError(Failure(answer.status, _UNEXPECTED_ANSWER)) from error
