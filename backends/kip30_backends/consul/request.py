"""One operation as a future, done by the thread that waits for it, or else by the thread pool.

A read of a single key that is requested while others are under way joins the next batch.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from typing_extensions import override

from kip30.driver.kit.futures import failed
from kip30.driver.records import Entry
from kip30.errors import ClosedError, Kip30Error, LifecycleError
from kip30_backends.consul import transactions
from kip30_backends.consul.client.exchange import Exchange
from kip30_backends.consul.client.library import Endpoints
from kip30_backends.consul.client.thread_pool import CLOSED, ThreadPool
from kip30_backends.consul.order import Orders
from kip30_backends.consul.transactions import FILTERED, Record, at_key, entry_of

T = TypeVar("T")

Work = Callable[[Exchange], T]


class Call(Future[T]):
    """A request that is sent once a caller wants its answer.

    Who waits for it does it on the waiting thread, which saves two changes of thread; if somebody
    asks whether it is done, or adds a callback, the thread pool does it.
    """

    def __init__(self, pool: ThreadPool, exchange: Exchange, work: Work[T]) -> None:
        """Have *work* done."""
        super().__init__()
        self._pool = pool
        self.exchange = exchange
        self._work = work
        self._unsent = threading.Lock()

    def start(self) -> None:
        """Have the thread pool do it unless a thread does."""
        if self._unsent.acquire(blocking=False):
            self._send()

    def _send(self) -> None:
        try:
            self._pool.do(self.run)
        except Kip30Error as error:
            self.fail(error)

    @override
    def result(self, timeout: float | None = None) -> T:
        self._here(timeout)
        return super().result(timeout)

    @override
    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._here(timeout)
        return super().exception(timeout)

    @override
    def done(self) -> bool:
        self.start()
        return super().done()

    @override
    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        super().add_done_callback(fn)
        self.start()

    def _here(self, timeout: float | None) -> None:
        """Do it on this thread, unless another one does or this must not wait that long."""
        if timeout is not None and time.monotonic() + timeout < self.exchange.until:
            self.start()
        elif self._unsent.acquire(blocking=False):
            self.run()

    def run(self) -> None:
        """Do it now, on this thread."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._work(self.exchange))
        except Exception as error:  # noqa: BLE001  a future carries whatever it is
            self.set_exception(error)
        except BaseException as error:
            self.set_exception(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Be done, with *error*."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


_MAX_UNDER_WAY = 3


class Read(Call[list[Entry | None]]):
    """A read of one key: a request of its own for who waits for it at once, else one of a batch."""

    def __init__(self, batches: "Batches", exchange: Exchange, key: str) -> None:
        """Read *key*."""
        super().__init__(batches.pool, exchange, self._alone)
        self.key = key
        self.exchange = exchange
        self._batches = batches

    @override
    def _send(self) -> None:
        self._batches.add(self)

    def answer(self, record: Record | None) -> None:
        """Be done, with what was found."""
        if self.set_running_or_notify_cancel():
            try:
                self.set_result([entry_of(record)])
            except Kip30Error as error:
                self.set_exception(error)

    def _alone(self, exchange: Exchange) -> list[Entry | None]:
        found = exchange.ask(at_key(self.key))
        return [entry_of(found.records[0] if found.records else None)]


class Batches:
    """Has few requests under way at a time; what comes meanwhile goes with the next one."""

    def __init__(self, pool: ThreadPool) -> None:
        """Have *pool* send it."""
        self.pool = pool
        self._waiting: deque[Read] = deque()
        self._under_way = 0
        self._lock = threading.Lock()

    def add(self, read: Read) -> None:
        """Do *read*, now or with others."""
        with self._lock:
            self._waiting.append(read)
            if self._under_way == _MAX_UNDER_WAY:
                return
            self._under_way += 1
        try:
            self.pool.do(self._run)
        except Kip30Error as error:
            self._fail(error)

    def _run(self) -> None:
        while reads := self._next():
            _read(reads)

    def _fail(self, error: Kip30Error) -> None:
        while reads := self._next():
            for one in reads:
                one.fail(error)

    def _next(self) -> list[Read]:
        """Return what is waiting, or take note that one request less is under way."""
        with self._lock:
            count = min(transactions.MAX_OPS, len(self._waiting))
            reads = [self._waiting.popleft() for _ in range(count)]
            self._under_way -= not reads
            return reads


def _read(reads: Sequence[Read]) -> None:
    """Do all *reads* together or, if that fails, in halves: each fails by its own key or time."""
    if len(reads) == 1:
        reads[0].run()
        return
    try:
        exchange = min((read.exchange for read in reads), key=_end)
        records = exchange.ask(transactions.read_granted([read.key for read in reads]))
    except Exception:  # noqa: BLE001  each tells what is the matter with it alone
        _read(reads[: len(reads) // 2])
        _read(reads[len(reads) // 2 :])
        return
    for read in reads:
        if read.key in records:
            read.answer(records[read.key])
        else:
            read.fail(exchange.refusal(FILTERED))


def _end(exchange: Exchange) -> float:
    return exchange.until


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
        self.pool = ThreadPool()
        self._batches = Batches(self.pool)
        self._pid = os.getpid()

    def on_demand(self, work: Work[T]) -> Future[T]:
        """Return the future of *work*, which begins once a caller wants to know.

        Who asks for a write does want to know.
        """
        refusal = self._refusal()
        return failed(refusal) if refusal else Call(self.pool, self.exchange(self.seconds), work)

    def begin(self, work: Work[T]) -> Future[T]:
        """Return the future of *work*, which the thread pool begins with now."""
        future = self.on_demand(work)
        future.done()  # which has it begin
        return future

    def batch(self, key: str) -> Future[list[Entry | None]]:
        """Return the future of the record at *key*, which may share a round trip with others.

        It is sent alone if the caller blocks on it, otherwise batched with other pending reads.
        """
        refusal = self._refusal()
        return failed(refusal) if refusal else Read(self._batches, self.exchange(self.seconds), key)

    def exchange(self, seconds: float) -> Exchange:
        """Return a conversation of so many *seconds*."""
        return Exchange(self.endpoints, self.closing, time.monotonic() + seconds)

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
        self.pool.stop()

    def _refusal(self) -> Kip30Error | None:
        if os.getpid() != self._pid:
            return LifecycleError("opened before a fork: open another one in the child")
        return ClosedError(CLOSED) if self.closing.is_set() else None


def ignored(_answer: Any) -> None:
    """Learn nothing from an answer but that it came."""
