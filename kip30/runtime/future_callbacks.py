"""Runs users' callbacks of futures off the stores' threads, and loses none."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from kip30.errors import UsageError
from kip30.runtime.dispatcher import Dispatcher

log: logging.Logger = logging.getLogger(__name__)


class Callbacks:
    """Calls functions on the threads of a dispatcher. Thread-safe."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """Call on the threads of *dispatcher*."""
        self._dispatcher = dispatcher
        self._measure = dispatcher.measure("future")
        self._lock = threading.Lock()
        self._waiting: dict[Callable[[], object], None] = {}  # keys alone, in the order of calls
        self._closed = False

    def call(self, function: Callable[[], object]) -> None:
        """Queue one call of *function*; after `close`, call it at once.

        A function that blocks delays no other one.
        """
        with self._lock:
            closed = self._closed
            if not closed:
                self._waiting[function] = None
        if closed:
            self._call(function)
        else:
            run = partial(self._run, function)
            self._dispatcher.task(run, "callback of a future", calls_back=True).wake()

    def close(self) -> None:
        """Call what the closed dispatcher has not called: a caller may wait for it."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
        for function in waiting:
            self._run(function)

    def _run(self, function: Callable[[], object]) -> None:
        with self._lock:
            first = function in self._waiting
            self._waiting.pop(function, None)
        if first:
            self._call(function)

    def _call(self, function: Callable[[], object]) -> None:
        began = time.monotonic()
        try:
            function()
        except BaseException:  # as `Future` does; it must not end the calling thread
            log.exception("a callback of a future raised")
        if self._measure is not None:
            self._measure(None, began)


def check_callable(**callbacks: object) -> None:
    """Check callbacks, each passed by its name; None stands for none.

    Raises:
        UsageError: One of them cannot be called.
    """
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            kind = type(callback).__name__
            raise UsageError(f"{name} must be callable, not {kind}: pass a function")


def check_callback(callback: object) -> None:
    """Check a listener passed by a user: it must be hashable so that it can be found for removal.

    Raises:
        UsageError: It cannot be called, or cannot be hashed.
    """
    kind = type(callback).__name__
    if not callable(callback):
        raise UsageError(f"a listener must be callable, not {kind}: pass a function")
    try:
        hash(callback)
    except TypeError as error:
        raise UsageError(
            f"a listener must be hashable, and {kind} is not: pass a function or a bound method"
            " of a hashable object"
        ) from error
