"""Asking the store: who may, for how long, and on which thread."""

import os
import threading
import time
from concurrent.futures import Future
from typing import Any, TypeVar

from kip30.driver.kit.futures import failed
from kip30.driver.records import Entry
from kip30.errors import ClosedError, Kip30Error, LifecycleError
from kip30_backends.consul.batches import Batches, Read
from kip30_backends.consul.call import Call, Work
from kip30_backends.consul.crew import CLOSED, Crew
from kip30_backends.consul.endpoints import Endpoints
from kip30_backends.consul.orders import Orders
from kip30_backends.consul.talk import Talk

T = TypeVar("T")


class Calls:
    """Does work that asks the servers. Thread-safe.

    Attributes:
        orders: The order of all answers.
        seconds: How long one call may take, all its requests together.
    """

    def __init__(self, endpoints: Endpoints, *, seconds: float) -> None:
        """Ask *endpoints*."""
        self.endpoints = endpoints
        self.orders = Orders()
        self.seconds = seconds
        self.closing = threading.Event()
        self.crew = Crew()
        self._batches = Batches(self.crew)
        self._pid = os.getpid()

    def on_demand(self, work: Work[T]) -> Future[T]:
        """Return the future of *work*, which begins once somebody wants to know.

        Who asks for a write does want to know.
        """
        refusal = self._refusal()
        return failed(refusal) if refusal else Call(self.crew, self.talk(self.seconds), work)

    def begin(self, work: Work[T]) -> Future[T]:
        """Return the future of *work*, which the crew begins with now."""
        future = self.on_demand(work)
        future.done()  # which has it begin
        return future

    def batch(self, key: str) -> Future[list[Entry | None]]:
        """Return the future of the record at *key*, which may share a round trip with others.

        It is read once somebody wants to know, and alone if that waits for it at once.
        """
        refusal = self._refusal()
        return failed(refusal) if refusal else Read(self._batches, self.talk(self.seconds), key)

    def talk(self, seconds: float) -> Talk:
        """Return a conversation of so many *seconds*."""
        return Talk(self.endpoints, self.closing, time.monotonic() + seconds)

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
        self.closing.set()
        self.endpoints.close()
        self.crew.stop()

    def _refusal(self) -> Kip30Error | None:
        if os.getpid() != self._pid:
            return LifecycleError("opened before a fork: open another one in the child")
        return ClosedError(CLOSED) if self.closing.is_set() else None


def ignored(_answer: Any) -> None:
    """Learn nothing from an answer but that it came."""
