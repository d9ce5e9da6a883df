"""Awaiting the futures of the thread-based classes, without a thread that waits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from kip30.errors import ClosedError

T = TypeVar("T")


class LateError(Exception):
    """A future was not done in time. Never seen by users."""


async def outcome(source: Future[T], seconds: float | None = None, *, shared: bool = False) -> T:
    """Return the result of *source*, or raise its error.

    If time runs out or the awaiting task is cancelled, *source* is cancelled too, unless it is
    *shared* with others. The operation may happen nevertheless.

    Raises:
        LateError: It was not done within *seconds*.
        ClosedError: It was cancelled by the closing store.
    """
    if not source.done():
        await _until_done(source, seconds, shared=shared)
    try:
        return source.result()
    except CancelledError as error:
        raise ClosedError("closed while waiting for the store") from error


async def _until_done(source: Future[T], seconds: float | None, *, shared: bool) -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    source.add_done_callback(lambda _: post(loop, lambda: _wake(woken)))
    timer = None if seconds is None else loop.call_later(max(0.0, seconds), _wake, woken)
    try:
        await woken
    except asyncio.CancelledError:
        if not shared:
            source.cancel()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if not source.done() and (shared or source.cancel() or not source.done()):
        raise LateError


def post(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> bool:
    """Call *function* in *loop* soon; false if the loop is closed. Any thread may call."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return False
    return True


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
