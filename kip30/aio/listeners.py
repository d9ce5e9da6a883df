"""`kip30.ListenerRegistry` for asyncio."""

from functools import partial
from typing import Generic, TypeVar

from kip30.aio.async_handle import AsyncHandle
from kip30.aio.listening import AsyncListener
from kip30.listeners import KeySetChange, ListenerRegistry, ValueChange
from kip30.runtime.base_handle import LoopHandle

T = TypeVar("T")


class ListenerRequests(ListenerRegistry[T], LoopHandle):
    """A `kip30.ListenerRegistry` that an event loop closes."""


class AsyncListenerRegistry(AsyncHandle[ListenerRequests[T]], Generic[T]):
    """`kip30.ListenerRegistry` for coroutine functions and plain functions of the loop.

    The same is promised: never two calls of one registration at once, the newest state arrives, and
    after a removal no call starts. A slow listener holds no thread.
    """

    async def add_value_change_listener(
        self, key: str, listener: AsyncListener[ValueChange[T]], *, initial: bool = False
    ) -> None:
        """See `kip30.ListenerRegistry.add_value_change_listener`."""
        registry = self._handle
        add = partial(registry.add_value_change_listener, key, initial=initial)
        remove = partial(registry.remove_value_change_listener, key)
        await self._listeners.add(("value", key), listener, add, remove)

    async def remove_value_change_listener(
        self, key: str, listener: AsyncListener[ValueChange[T]]
    ) -> None:
        """See `kip30.ListenerRegistry.remove_value_change_listener`."""
        remove = partial(self._handle.remove_value_change_listener, key)
        await self._listeners.remove(("value", key), listener, remove)

    async def add_key_set_change_listener(
        self, namespace: str, listener: AsyncListener[KeySetChange], *, initial: bool = False
    ) -> None:
        """See `kip30.ListenerRegistry.add_key_set_change_listener`."""
        registry = self._handle
        add = partial(registry.add_key_set_change_listener, namespace, initial=initial)
        remove = partial(registry.remove_key_set_change_listener, namespace)
        await self._listeners.add(("keys", namespace), listener, add, remove)

    async def remove_key_set_change_listener(
        self, namespace: str, listener: AsyncListener[KeySetChange]
    ) -> None:
        """See `kip30.ListenerRegistry.remove_key_set_change_listener`."""
        remove = partial(self._handle.remove_key_set_change_listener, namespace)
        await self._listeners.remove(("keys", namespace), listener, remove)
