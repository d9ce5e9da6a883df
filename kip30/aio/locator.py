"""`kip30.PluginLocator` for asyncio."""

import asyncio
from typing import Any, Self, TypeVar, overload

from kip30.aio.awaiting import outcome
from kip30.aio.bridge import Bridge, for_task
from kip30.aio.closing_thread import ClosingThread
from kip30.aio.election import AsyncLeaderElection, ElectionRequests
from kip30.aio.listeners import AsyncListenerRegistry, ListenerRequests
from kip30.aio.listening import AsyncListener, Listeners
from kip30.aio.membership import AsyncGroupMembership, MembershipRequests
from kip30.aio.storage import AsyncStorage, StorageRequests
from kip30.aio.workers import on_own_thread
from kip30.codecs import STR, Codec, check_codec
from kip30.driver import Backend
from kip30.driver.clock import Clock
from kip30.errors import LifecycleError
from kip30.locator import PluginLocator
from kip30.metrics import Metrics
from kip30.runtime.lease_tracker import SessionLost
from kip30.runtime.open_store import OpenStore
from kip30.runtime.resolution import Configuration

T = TypeVar("T")


class _Locator(PluginLocator):
    """Provides the interfaces without their waiting."""

    def store(self) -> OpenStore:
        return self._open()

    def storage_requests(self, codec: Codec[T]) -> StorageRequests[T]:
        check_codec(codec)
        return StorageRequests(self._open(), codec, self._connection_owner)

    def listener_requests(self, codec: Codec[T]) -> ListenerRequests[T]:
        check_codec(codec)
        return ListenerRequests(self._open(), codec, self._connection_owner)

    def membership_requests(self, group: str, codec: Codec[T]) -> MembershipRequests[T]:
        check_codec(codec)
        return MembershipRequests(self._open(), group, codec, self._connection_owner)

    def election_requests(self, service: str, codec: Codec[T]) -> ElectionRequests[T]:
        check_codec(codec)
        return ElectionRequests(self._open(), service, codec, self._connection_owner)


class AsyncPluginLocator:
    """`kip30.PluginLocator` for asyncio; an async context manager.

    It and all that it hands out belong to the event loop that entered it: use a locator in each
    loop. Used in another loop, they raise `LifecycleError`.
    """

    def __init__(self, config: Configuration = None, *, clock: Clock | None = None) -> None:
        """Prepare; entering the ``async with`` block opens the store of *config*.

        *clock* is for tests of timing rules.
        """
        self._locator = _Locator(clock=clock)
        self._config = config
        self._bridge: Bridge | None = None
        self._listeners: Listeners | None = None

    async def __aenter__(self) -> Self:
        """Open the store; see `kip30.PluginLocator.startup`."""
        if self._bridge is not None:
            raise LifecycleError("this locator is started already: make another one")
        starting = on_own_thread(lambda: self._locator.startup(self._config))
        try:
            await outcome(starting)
        except asyncio.CancelledError:
            # The store may soon be open, but its owner is gone.
            starting.add_done_callback(lambda _: ClosingThread(self._locator.close))
            raise
        self._bridge = Bridge(self._locator.store())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the store; see `close`."""
        await self.close()

    async def close(self) -> None:
        """Leave all groups, resign all candidates, end all listeners and close the store.

        Running calls of listeners are cancelled, except the one this is called from. Idempotent. A
        task that is cancelled meanwhile does not end before the store is closed.
        """
        bridge = self._bridge
        if bridge is None or bridge.store.is_foreign():
            return
        bridge.store.end_terms()
        try:
            await bridge.end_listening()
        finally:
            await self._end(bridge)

    @property
    def backend(self) -> Backend:
        """The open driver: its name, capabilities and limits."""
        return self._locator.backend

    @property
    def locator(self) -> PluginLocator:
        """The underlying locator, for classes built on it; `close` closes it."""
        self._open()
        return self._locator

    def metrics(self) -> Metrics:
        """See `kip30.PluginLocator.metrics`. Reading them waits for no request."""
        self._open()
        return self._locator.metrics()

    @property
    def bridge(self) -> Bridge:
        """The connection from this loop to the store, for the recipes of kip30."""
        return self._open()

    @overload
    def storage(self) -> AsyncStorage[str]: ...
    @overload
    def storage(self, codec: Codec[T]) -> AsyncStorage[T]: ...
    def storage(self, codec: Codec[Any] = STR) -> AsyncStorage[Any]:
        """See `kip30.PluginLocator.storage`."""
        return AsyncStorage(self._open(), self._locator.storage_requests(codec))

    @overload
    def listener_registry(self) -> AsyncListenerRegistry[str]: ...
    @overload
    def listener_registry(self, codec: Codec[T]) -> AsyncListenerRegistry[T]: ...
    def listener_registry(self, codec: Codec[Any] = STR) -> AsyncListenerRegistry[Any]:
        """See `kip30.PluginLocator.listener_registry`."""
        return AsyncListenerRegistry(self._open(), self._locator.listener_requests(codec))

    @overload
    def group_membership(self, group: str) -> AsyncGroupMembership[str]: ...
    @overload
    def group_membership(self, group: str, codec: Codec[T]) -> AsyncGroupMembership[T]: ...
    def group_membership(self, group: str, codec: Codec[Any] = STR) -> AsyncGroupMembership[Any]:
        """See `kip30.PluginLocator.group_membership`."""
        return AsyncGroupMembership(self._open(), self._locator.membership_requests(group, codec))

    @overload
    def leader_election(self, service: str) -> AsyncLeaderElection[str]: ...
    @overload
    def leader_election(self, service: str, codec: Codec[T]) -> AsyncLeaderElection[T]: ...
    def leader_election(self, service: str, codec: Codec[Any] = STR) -> AsyncLeaderElection[Any]:
        """See `kip30.PluginLocator.leader_election`."""
        return AsyncLeaderElection(self._open(), self._locator.election_requests(service, codec))

    async def add_session_listener(self, listener: AsyncListener[SessionLost]) -> None:
        """See `kip30.PluginLocator.add_session_listener`."""
        add, remove = self._locator.add_session_listener, self._locator.remove_session_listener
        await self._session_listeners().add("session", listener, add, remove)

    async def remove_session_listener(self, listener: AsyncListener[SessionLost]) -> None:
        """See `kip30.PluginLocator.remove_session_listener`."""
        remove = self._locator.remove_session_listener
        await self._session_listeners().remove("session", listener, remove)

    def _open(self) -> Bridge:
        self._locator.store()
        if self._bridge is None:
            raise LifecycleError("this locator is not started: enter it by `async with`")
        self._bridge.check()
        return self._bridge

    async def _end(self, bridge: Bridge) -> None:
        """Close the store, and set `lost` of all that was held: its own event may come later."""
        try:
            await ClosingThread(for_task(self._locator.close)).end()
        finally:
            for counterparts in list(bridge.counterparts):
                bridge.call_in_loop(counterparts.note_ends)

    def _session_listeners(self) -> Listeners:
        bridge = self._open()
        if self._listeners is None:
            self._listeners = Listeners(bridge)
        return self._listeners
