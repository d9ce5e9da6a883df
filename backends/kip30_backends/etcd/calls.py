"""Asking the store: who may, for how long, and with what all calls share."""

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kip30.driver.kit.futures import failed
from kip30.driver.kit.timer import Timer
from kip30.errors import ClosedError, Kip30Error, LifecycleError
from kip30_backends.etcd.batches import Batches, Read
from kip30_backends.etcd.call import Ask, Call, Route
from kip30_backends.etcd.channel import STATUS
from kip30_backends.etcd.endpoints import Endpoints
from kip30_backends.etcd.errors import Access
from kip30_backends.etcd.messages import MESSAGES, RangeAnswer, StatusAnswer
from kip30_backends.etcd.orders import Mark, Orders
from kip30_backends.etcd.tokens import Tokens

T = TypeVar("T")


def acknowledged(_answer: Any, _sent: Mark) -> None:
    """Learn nothing from an answer but that it came."""


class Calls:
    """Sends calls to the server in use. Thread-safe.

    Attributes:
        orders: The order of all answers.
        access: Which keys the calls are about.
        seconds: How long a call may take, all its attempts together.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        tokens: Tokens,
        pulse: Timer,
        *,
        seconds: float,
        access: Access,
    ) -> None:
        """Send to *endpoints*, with the token that *tokens* has, what needs *access*."""
        self.endpoints = endpoints
        self.orders = Orders()
        self.tokens = tokens
        self.seconds = seconds
        self.access = access
        self._route = Route(endpoints, tokens, self.orders, pulse, access)
        self._batches = Batches(self._route, seconds)
        self._pid = os.getpid()
        self._closed = False

    def send(self, ask: Ask[T], seconds: float | None = None) -> Future[T]:
        """Return the future answer to *ask*, which ends by the operation timeout or *seconds*.

        What writes is sent at once, anything else once somebody wants the answer.
        """
        answer = self.on_demand(ask, seconds)
        if ask.writes:
            answer.done()  # which has it sent
        return answer

    def on_demand(self, ask: Ask[T], seconds: float | None = None) -> Future[T]:
        """Return the same, but have also a write sent only once somebody wants the answer."""
        refusal = self._refusal()
        return failed(refusal) if refusal else Call(self._route, ask, seconds or self.seconds)

    def batch(self, key: bytes, read: Callable[[RangeAnswer], T]) -> Future[T]:
        """Return the future of *key*, which may share a round trip with others.

        It is sent once somebody wants the answer, and alone if that waits for it at once.
        """
        refusal = self._refusal()
        return failed(refusal) if refusal else Read(self._route, self._batches, key, read)

    def status(self) -> StatusAnswer:
        """Return what the server in use says of itself; raises what a call raises."""
        return self.send(Ask(STATUS, MESSAGES["StatusRequest"](), _status)).result()

    def check(self) -> None:
        """Raise unless calls can be made here and now.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """End all calls, and take no more."""
        self._closed = True
        self.endpoints.close()

    def _refusal(self) -> Kip30Error | None:
        if os.getpid() != self._pid:
            return LifecycleError("opened before a fork: open another one in the child")
        return ClosedError("the backend is closed") if self._closed else None


def _status(answer: StatusAnswer, _sent: Mark) -> StatusAnswer:
    return answer
