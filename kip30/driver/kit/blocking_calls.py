"""Futures for a store whose client blocks: each call runs on the thread that waits, or a pool."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from typing_extensions import override

from kip30.driver.kit.futures import failed
from kip30.driver.kit.gate import Gate
from kip30.driver.kit.lazy_future import LazyFuture
from kip30.driver.kit.thread_pool import ThreadPool
from kip30.errors import Kip30Error, LifecycleError

T = TypeVar("T")


class BlockingCall(LazyFuture[T]):
    """One call. It runs once, on the first thread that waits for it, or on one of the pool.

    Attributes:
        until: Its deadline, by `time.monotonic`.
    """

    def __init__(self, pool: ThreadPool, work: Callable[[], T], until: float) -> None:
        """Complete with the result or error of *work*, which ends by *until*."""
        super().__init__()
        self.until = until
        self._pool = pool
        self._work = work

    @override
    def send(self) -> None:
        try:
            self._pool.do(self.run)
        except Kip30Error as error:
            self.fail(error)

    @override
    def send_here(self, timeout: float | None) -> None:
        if timeout is not None and time.monotonic() + timeout < self.until:
            self.send()  # this thread must not wait as long as the work may take
        else:
            self.run()

    def run(self) -> None:
        """Do the work now, on this thread, unless a caller has cancelled it."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(self._work())
        except Exception as error:  # noqa: BLE001  a future carries any error
            self.set_exception(error)
        except BaseException as error:
            self.set_exception(error)
            raise


class BlockingCalls:
    """Makes the calls of one backend. Thread-safe.

    Attributes:
        gate: Whether calls can be made.
        pool: Runs the calls that no caller waits for.
        seconds: How long one call may take.
    """

    def __init__(self, name: str, *, seconds: float) -> None:
        """Run calls on threads of that *name*."""
        self.gate: Gate = Gate()
        self.pool: ThreadPool = ThreadPool(name)
        self.seconds = seconds

    def on_demand(self, work: Callable[[float], T]) -> Future[T]:
        """Return the future of *work*, which begins once a caller wants the answer.

        *work* receives the time of `time.monotonic` by which it has to end. It raises one of
        kip30's errors: a `DefiniteError` only if nothing was done and nothing will be.
        """
        refusal = self.gate.refusal()
        if refusal is not None:
            return failed(refusal)
        until = time.monotonic() + self.seconds
        return BlockingCall(self.pool, partial(self._do, work, until), until)

    def _do(self, work: Callable[[float], T], until: float) -> T:
        # The process may have forked since the future was made: then the parent sends it.
        refusal = self.gate.refusal()
        if isinstance(refusal, LifecycleError):
            raise refusal
        return work(until)

    def begin(self, work: Callable[[float], T]) -> Future[T]:
        """Return the future of *work*, which the pool begins now."""
        future = self.on_demand(work)
        future.done()  # which starts it
        return future

    def close(self) -> None:
        """Refuse further calls, and wait until those that began have ended."""
        # The gate first, or a call that has passed it would find no thread.
        self.gate.close()
        self.pool.stop()
