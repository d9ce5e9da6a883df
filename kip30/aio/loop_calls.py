"""Calls from a thread into an event loop, for which the thread waits."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from typing import Any

from kip30.aio.bridge import Bridge
from kip30.driver.kit.futures import fail, succeed
from kip30.errors import ClosedError, LifecycleError

_PAUSE = 1.0
"""Seconds that a thread waits before it checks whether the loop still exists."""


class LoopCalls:
    """Calls functions of a loop, coroutine functions or plain ones, from other threads."""

    def __init__(self, bridge: Bridge) -> None:
        """Call in the running loop, in a copy of the present context."""
        self._bridge = bridge
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._context = copy_context()

    def is_closed(self) -> bool:
        """Return whether no call can reach the loop any longer. Any thread may ask."""
        return self._bridge.closed or self._loop.is_closed()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* in the loop, wait until it has ended, and return what it returns.

        Raises:
            ClosedError: The loop or the locator is closed: it was not called, or it was cancelled.
            LifecycleError: This is the loop's own thread. It was not called.
            CancelledError: Of `concurrent.futures`: it was cancelled, or has awaited a task that
                was. Its effects up to there have happened.
            BaseException: What it raised.
        """
        if threading.get_ident() == self._thread:
            raise LifecycleError("the loop would wait for itself: this needs a thread")
        answer: Future[Any] = Future()
        if not self._bridge.post(lambda: self._start(function, arguments, answer)):
            raise ClosedError("the event loop is closed")
        while True:
            try:
                return answer.result(_PAUSE)
            except CancelledError:
                if self._bridge.closed:
                    raise ClosedError("closed while the application was called") from None
                raise
            except TimeoutError:
                if answer.done():
                    raise  # the application's own
                if self._loop.is_closed():
                    raise ClosedError("the event loop is closed") from None

    def _start(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], answer: Future[Any]
    ) -> None:
        if self._bridge.closed:
            fail(answer, ClosedError("the locator is closed"))
            return
        task = self._bridge.start(_run(function, arguments, answer), self._context.copy())
        # A task that is cancelled before its first step never runs.
        task.add_done_callback(lambda _: answer.cancel())


async def _run(
    function: Callable[..., Any], arguments: tuple[Any, ...], answer: Future[Any]
) -> None:
    try:
        result = function(*arguments)
        if inspect.isawaitable(result):
            result = await result
    except asyncio.CancelledError as error:
        cancelled = CancelledError("the call was cancelled, or has awaited a cancelled task")
        cancelled.__cause__ = error  # its traceback shows where
        fail(answer, cancelled)
        raise
    except BaseException as error:  # noqa: BLE001  it is raised where it was called
        fail(answer, error)
    else:
        succeed(answer, result)
