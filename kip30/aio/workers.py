"""Calls of an event loop that block.

They run on the threads of the store's dispatcher, which are few while calls end, and more once
they do not. So a loop has no threads of its own.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.thread_start import started
from kip30.errors import ClosedError, UnavailableError
from kip30.runtime.dispatcher import Dispatcher, Task

T = TypeVar("T")


class Workers:
    """Makes up to a given number of calls at once; the others queue. Thread-safe."""

    def __init__(self, dispatcher: Dispatcher, most: int, *, read: bool = False) -> None:
        """Make up to *most* calls at once, on threads of *dispatcher*; all *read*, or none does."""
        self._lock = threading.Lock()
        self._queue: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._idle = [self._worker(dispatcher, reads=read) for _ in range(most)]
        self._closed = False
        dispatcher.on_close(self.close)

    def submit(self, function: Callable[[], T], future: Future[T] | None = None) -> Future[T]:
        """Call *function* on a thread. A future that is cancelled in the queue is not called.

        The future, *future* if it is given, fails with `ClosedError` once the dispatcher is closed;
        *function* is not called then. While the system has no thread to spare, it waits for one.
        """
        asked = Future[T]() if future is None else future
        with self._lock:
            is_closed = self._closed
            if not is_closed:
                self._queue.append((function, asked))
                if self._idle:
                    self._idle.pop().wake()
        if is_closed:
            fail(asked, ClosedError("the locator is closed: start a new one"))
        return asked

    def close(self) -> None:
        """Fail queued calls with `ClosedError`, and accept no more; those that began may end."""
        with self._lock:
            self._closed = True
            queued = list(self._queue)
            self._queue.clear()
        for _, future in queued:
            fail(future, ClosedError("closed while waiting for a thread: nothing was sent"))

    def _worker(self, dispatcher: Dispatcher, *, reads: bool) -> Task:
        def serve() -> None:
            self._serve(worker)

        worker = dispatcher.call_task(serve, "call of an event loop", reads=reads)
        return worker

    def _serve(self, worker: Task) -> None:
        """Make one call; *worker* makes the next one in its turn, behind other tasks."""
        with self._lock:
            call = self._queue.popleft() if self._queue else None
        if call is not None:
            _run(*call)
        with self._lock:
            if self._queue:
                worker.wake()
            else:
                self._idle.append(worker)


def on_own_thread(function: Callable[[], T]) -> Future[T]:
    """Call *function* on a thread of its own, while there is no store and so no dispatcher.

    The future fails with `UnavailableError` if the system has no thread to spare.
    """
    future: Future[T] = Future()
    thread = threading.Thread(
        target=_run, args=(function, future), name="kip30-aio-open", daemon=True
    )
    if not started(thread):
        fail(future, UnavailableError("no thread to spare: nothing was sent"))
    return future


def _run(function: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  a future carries any error
        fail(future, error)
    else:
        succeed(future, result)
