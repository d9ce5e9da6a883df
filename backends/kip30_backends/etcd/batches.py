"""Reads of single keys that are asked for while others are on their way: they travel together."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from typing_extensions import override

from kip30.errors import UnavailableError
from kip30_backends.etcd import requests
from kip30_backends.etcd.call import Ask, Call, Route
from kip30_backends.etcd.channel import RANGE, TXN
from kip30_backends.etcd.messages import RangeAnswer, TxnAnswer
from kip30_backends.etcd.orders import Mark

T = TypeVar("T")

MAX_OPS = 128
"""How many operations etcd takes in one transaction, with its own settings."""

_MAX_UNDER_WAY = 4


class Read(Call[T]):
    """A read of one key: a call of its own for who waits for it at once, else one of a batch."""

    def __init__(
        self, route: Route, batches: "Batches", key: bytes, read: Callable[[RangeAnswer], T]
    ) -> None:
        """Read *key*; *read* is what the answer means."""

        def meaning(answer: RangeAnswer, _sent: Mark) -> T:
            return read(answer)

        ask = Ask(RANGE, requests.read(key), meaning)
        super().__init__(route, ask, batches.seconds)
        self.key = key
        self._batches = batches

    @override
    def _send(self) -> None:
        self._batches.add(self)


class Batches:
    """Has few requests under way at a time; what comes meanwhile goes with the next one."""

    def __init__(self, route: Route, seconds: float) -> None:
        """Have every read answered in so many *seconds*."""
        self.seconds = seconds
        self._route = route
        self._waiting: deque[Read[Any]] = deque()
        self._under_way = 0
        self._lock = threading.Lock()

    def add(self, read: Read[Any]) -> None:
        """Send *read*, now or with others."""
        with self._lock:
            self._waiting.append(read)
            if self._under_way == _MAX_UNDER_WAY:
                return
            self._under_way += 1
        self._send_next()

    def _send_next(self) -> None:
        """Send what is waiting, or take note that one request less is under way."""
        with self._lock:
            reads = [self._waiting.popleft() for _ in range(min(MAX_OPS, len(self._waiting)))]
            if not reads:
                self._under_way -= 1
                return
        request = requests.txn([], [requests.find(read.key) for read in reads])
        batch = Call(self._route, Ask(TXN, request, _whole), reads[0].seconds_left())
        batch.add_done_callback(partial(self._answered, reads))

    def _answered(self, reads: list[Read[Any]], batch: Future[TxnAnswer]) -> None:
        self._send_next()
        error = batch.exception()
        if error is not None:
            self._failed(reads, error)
            return
        for read, answer in zip(reads, batch.result().responses, strict=True):
            read.answered(answer.response_range)

    def _failed(self, reads: list[Read[Any]], error: BaseException) -> None:
        """Fail *reads*, but for those that had only to share the deadline of the first."""
        in_time = reads[0].has_time() or not isinstance(error, UnavailableError)
        for read in reads:
            if in_time or not read.has_time():
                read.fail(error)
            else:
                self.add(read)


def _whole(answer: TxnAnswer, _sent: Mark) -> TxnAnswer:
    return answer
