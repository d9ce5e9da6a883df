"""One request to the store: a future, run by the thread that waits for it or by the thread pool.

A read of a single key that is requested while others are under way joins the next batch.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from typing_extensions import override

from kip30.driver.kit.batch_queue import BatchQueue
from kip30.driver.kit.blocking_calls import BlockingCall, BlockingCalls
from kip30.driver.kit.futures import failed
from kip30.driver.kit.thread_pool import ThreadPool
from kip30.driver.records import Entry
from kip30.errors import Kip30Error
from kip30_backends.consul import transactions
from kip30_backends.consul.client.endpoints import Endpoints
from kip30_backends.consul.client.operation_requests import OperationRequests
from kip30_backends.consul.observation_order import AnswerOrder
from kip30_backends.consul.transactions import FILTERED, KVPair, at_key, entry_of

T = TypeVar("T")

Work = Callable[[OperationRequests], T]

_MAX_UNDER_WAY = 3


class Read(BlockingCall[list[Entry | None]]):
    """A read of one key: sent alone if a caller waits for it at once, otherwise in a batch."""

    def __init__(self, batches: "Batches", requests: OperationRequests, key: str) -> None:
        """Read *key*."""
        super().__init__(batches.pool, self._alone, requests.until)
        self.key = key
        self.requests = requests
        self._batches = batches

    @override
    def send(self) -> None:
        self._batches.add(self)

    def answer(self, record: KVPair | None) -> None:
        """Complete the read with *record*."""
        if self.set_running_or_notify_cancel():
            try:
                self.set_result([entry_of(record)])
            except Kip30Error as error:
                self.set_exception(error)

    def _alone(self) -> list[Entry | None]:
        found = self.requests.ask(at_key(self.key))
        return [entry_of(found.records[0] if found.records else None)]


class Batches:
    """Sends reads: alone while there are few, otherwise many in a request."""

    def __init__(self, pool: ThreadPool) -> None:
        """Send reads with *pool*."""
        self.pool = pool
        self._queue: BatchQueue[Read] = BatchQueue(
            most=transactions.MAX_OPS, under_way=_MAX_UNDER_WAY
        )

    def add(self, read: Read) -> None:
        """Send *read*, now or with others."""
        if not self._queue.add(read):
            return
        try:
            self.pool.do(self._run)
        except Kip30Error as error:
            self._fail(error)

    def _run(self) -> None:
        while reads := self._queue.take():
            _read(reads)

    def _fail(self, error: Kip30Error) -> None:
        while reads := self._queue.take():
            for one in reads:
                one.fail(error)


def _read(reads: Sequence[Read]) -> None:
    """Send *reads* together; if that fails, in halves: each fails by its own key or deadline."""
    if len(reads) == 1:
        reads[0].run()
        return
    try:
        requests = min((read.requests for read in reads), key=_end)
        records = requests.ask(transactions.read_granted([read.key for read in reads]))
    except Exception:  # noqa: BLE001  each tells what is the matter with it alone
        _read(reads[: len(reads) // 2])
        _read(reads[len(reads) // 2 :])
        return
    for read in reads:
        if read.key in records:
            read.answer(records[read.key])
        else:
            read.fail(requests.refusal(FILTERED))


def _end(requests: OperationRequests) -> float:
    return requests.until


class Calls:
    """Runs work that sends requests to the servers. Thread-safe.

    Attributes:
        orders: The order of all answers.
        seconds: How long one call may take, all its requests together.
        gate: Whether calls can be made.
        pool: Runs the work that no caller waits for.
    """

    def __init__(self, endpoints: Endpoints, *, seconds: float) -> None:
        """Send requests to *endpoints*."""
        self.endpoints = endpoints
        self.orders = AnswerOrder()
        self.seconds = seconds
        self.closing = threading.Event()
        self._calls = BlockingCalls("kip30-consul", seconds=seconds)
        self.gate = self._calls.gate
        self.pool = self._calls.pool
        self._batches = Batches(self.pool)

    def on_demand(self, work: Work[T]) -> Future[T]:
        """Return the future of *work*, which starts once a caller wants the answer."""
        return self._calls.on_demand(lambda until: work(self.requests_by(until)))

    def begin(self, work: Work[T]) -> Future[T]:
        """Return the future of *work*, which the thread pool starts now."""
        return self._calls.begin(lambda until: work(self.requests_by(until)))

    def batch(self, key: str) -> Future[list[Entry | None]]:
        """Return the future of the record at *key*, which may share a round trip with others.

        It is sent alone if the caller blocks on it, otherwise batched with other pending reads.
        """
        refusal = self.gate.refusal()
        return failed(refusal) if refusal else Read(self._batches, self.requests(self.seconds), key)

    def requests(self, seconds: float) -> OperationRequests:
        """Return the requests of an operation that may take *seconds*."""
        return self.requests_by(time.monotonic() + seconds)

    def requests_by(self, until: float) -> OperationRequests:
        """Return the requests of an operation that ends by *until*, a time of `time.monotonic`."""
        return OperationRequests(self.endpoints, self.closing, until)

    def close(self) -> None:
        """End all calls, and accept no more."""
        # The pool comes last: its threads end once the requests that they wait for have ended.
        self.gate.close()
        self.closing.set()
        self.endpoints.close()
        self._calls.close()
