"""Shared code of the four interfaces for asyncio."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from kip30.aio.bridge import Bridge, for_task, task_runner
from kip30.aio.leased import AsyncCounterparts
from kip30.aio.listening import Listeners
from kip30.errors import ClosedError, OutcomeUnknownError
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.term_work import acting_as

H = TypeVar("H", bound=LoopHandle)


class Closing:
    """The close of handles in a loop: at once there, then in the store, even if it is cancelled."""

    def __init__(
        self,
        bridge: Bridge,
        handles: Sequence[LoopHandle],
        counterparts: AsyncCounterparts[Any, Any] | None = None,
    ) -> None:
        """Close nothing yet; *counterparts* are of what is held through *handles*."""
        self._bridge = bridge
        self._handles = handles
        self._counterparts = counterparts
        self._in_store: list[Future[None]] = []

    async def close(self) -> None:
        """Close the handles, or wait for a close that has begun; do nothing in a forked child."""
        if self._bridge.store.is_foreign():
            return
        try:
            if not self._bridge.closed:
                await self._close()
        finally:
            if self._counterparts is not None:
                self._counterparts.note_ends()

    async def _close(self) -> None:
        self._bridge.check()
        with acting_as(task_runner()):
            ended = [handle for handle in self._handles if handle.end_locally()]
        self._in_store += [
            self._bridge.submit(for_task(handle.release_in_store)) for handle in ended
        ]
        for end in self._in_store:
            with suppress(ClosedError):  # the locator's close has ended it
                await self._bridge.shared(end, OutcomeUnknownError, is_answer=False)


class AsyncHandle(Generic[H]):
    """One interface over an open store, for one event loop; an async context manager."""

    def __init__(
        self, bridge: Bridge, handle: H, counterparts: AsyncCounterparts[Any, Any] | None = None
    ) -> None:
        """Use the methods of `AsyncPluginLocator` instead."""
        self._bridge = bridge
        self._handle = handle
        self._listeners = Listeners(bridge)
        self._closing = Closing(bridge, [handle], counterparts)

    async def close(self) -> None:
        """Give back what was claimed through this handle and remove its listeners. Idempotent.

        See `Handle.close`. Locally it takes effect at once, and it goes on to its end even if the
        awaiting task is cancelled. Without it, the end of the locator does the same.

        Raises:
            OutcomeUnknownError: The store has not confirmed it in time. Locally it is closed.
        """
        if not (self._bridge.closed or self._bridge.store.is_foreign()):
            self._bridge.check()
            self._listeners.close()
        await self._closing.close()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close it, however the block ends."""
        await self.close()
