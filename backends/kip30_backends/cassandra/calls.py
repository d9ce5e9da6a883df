"""Asking the store: who may, and for how long."""

import os
import time
from concurrent.futures import Future
from typing import Any, TypeVar

from kip30.driver.kit.futures import failed
from kip30.errors import Kip30Error, LifecycleError
from kip30_backends.cassandra.call import Answer, Ask, Call, Route
from kip30_backends.cassandra.errors import closed
from kip30_backends.cassandra.orders import Orders
from kip30_backends.cassandra.revisions import Revisions
from kip30_backends.cassandra.statements import Statements

T = TypeVar("T")


class Calls:
    """Sends requests. Thread-safe.

    Attributes:
        statements: What can be sent.
        root: The namespace of the configuration, which is a part of every key.
        seconds: How long an operation may take, all its requests together.
        orders: The order of all answers.
        revisions: What writes are numbered by.
    """

    def __init__(self, route: Route, statements: Statements, *, seconds: float, root: str) -> None:
        """Send by *route*."""
        self.statements = statements
        self.root = root
        self.seconds = seconds
        self.orders = Orders()
        self.revisions = Revisions()
        self.pulse = route.pulse
        self._route = route
        self._pid = os.getpid()
        self._closed = False
        self._open: set[Call[Any]] = set()

    def until(self) -> float:
        """Return by when what begins now has to end, by the clock of `time.monotonic`."""
        return time.monotonic() + self.seconds

    def send(self, ask: Ask[T], until: float | None = None) -> Future[T]:
        """Return the future answer to *ask*, which ends by the operation timeout or *until*."""
        refusal = self._refusal()
        if refusal is not None:
            return failed(refusal)
        call = Call(self._route, ask, self.until() if until is None else until)
        self._open.add(call)
        call.add_done_callback(lambda _: self._open.discard(call))
        if self._closed:
            call.close()
        call.start()
        return call

    def check(self) -> None:
        """Raise unless requests can be made here and now.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """End all requests, and take no more."""
        self._closed = True
        for call in list(self._open):
            call.close()

    def _refusal(self) -> Kip30Error | None:
        if os.getpid() != self._pid:
            return LifecycleError("opened before a fork: open another one in the child")
        return closed() if self._closed else None


def acknowledged(_answer: Answer) -> None:
    """Learn nothing from an answer but that it came."""
