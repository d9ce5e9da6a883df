"""A few threads for the calls of an event loop that block.

No thread starts before the first call, and each ends after two seconds without one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.thread_start import started
from kip30.errors import ClosedError, Kip30Error, UnavailableError

T = TypeVar("T")

_IDLE_SECONDS = 2.0


class Workers:
    """Up to a given number of threads. Thread-safe."""

    def __init__(self, most: int) -> None:
        """Start no thread yet, and never more than *most*."""
        self._most = most
        self._changed = threading.Condition()
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._threads: dict[threading.Thread, None] = {}  # keys alone, in the order of starts
        self._idle = 0  # threads that wait for a call
        self._closed = False

    def submit(self, function: Callable[[], T], future: Future[T] | None = None) -> Future[T]:
        """Call *function* on a thread. A future that is cancelled in the queue is not called.

        The future, *future* if it is given, fails with `ClosedError` after `close`, and with
        `UnavailableError` if the system has no thread to spare for the first call; *function* is
        not called then.
        """
        asked = Future[T]() if future is None else future
        refusal = self._enqueue(function, asked)
        if refusal is not None:
            fail(asked, refusal)
        return asked

    def close(self, timeout_seconds: float) -> None:
        """Fail queued calls with `ClosedError` and wait for the threads, except the caller's."""
        with self._changed:
            self._closed = True
            queued = list(self._queue)
            self._queue.clear()
            threads = list(self._threads)
            self._changed.notify_all()
        for _, future in queued:
            fail(future, ClosedError("closed while waiting for a thread: nothing was sent"))
        until = time.monotonic() + timeout_seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    def _enqueue(self, function: Callable[[], T], future: Future[T]) -> Kip30Error | None:
        with self._changed:
            if self._closed:
                return ClosedError("the locator is closed: start a new one")
            if len(self._queue) >= self._idle and len(self._threads) < self._most:
                self._start()
            if not self._threads:
                return UnavailableError("no thread to spare: nothing was sent")
            self._queue.append((function, future))
            self._changed.notify()
            return None

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name="kip30-aio", daemon=True)
        if started(thread):
            self._threads[thread] = None

    def _serve(self) -> None:
        while call := self._next():
            _run(*call)
            del call  # an idle thread must keep nothing alive

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._changed:
            if not self._queue and not self._closed:
                self._idle += 1
                self._changed.wait_for(lambda: self._queue or self._closed, _IDLE_SECONDS)
                self._idle -= 1
            if self._queue:
                return self._queue.popleft()
            self._threads.pop(threading.current_thread(), None)
            return None


def _run(function: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  a future carries any error
        fail(future, error)
    else:
        succeed(future, result)
