"""What the four interfaces for asyncio have in common."""

from typing import Generic, Self, TypeVar

from kip30.aio.bridge import Bridge
from kip30.aio.listening import Listeners
from kip30.runtime.base_handle import Handle

H = TypeVar("H", bound=Handle)


class AsyncHandle(Generic[H]):
    """One interface over an open store, for one event loop; an async context manager."""

    def __init__(self, bridge: Bridge, handle: H) -> None:
        """Use the methods of `AsyncPluginLocator` instead."""
        self._bridge = bridge
        self._handle = handle
        self._listeners = Listeners(bridge)

    async def close(self) -> None:
        """Give back what was claimed through this handle and remove its listeners. Idempotent.

        See `Handle.close`. Without it, the end of the locator does the same.
        """
        if not self._bridge.closed:
            self._listeners.close()
            await self._bridge.call(self._handle.close)

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close it, however the block ends."""
        await self.close()
