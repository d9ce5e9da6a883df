"""The four interfaces for asyncio, over the same portable classes.

There is no second implementation: reads that are futures below are awaited as
futures; every other call runs in a thread of the loop's executor. Cancelling a
task that awaits a call does not take the call back: it may still happen.
Listeners may be coroutine functions; they run in the loop, one call at a time.

    >>> async def main() -> None:
    ...     async with AsyncPluginLocator(config) as locator:
    ...         election, storage = locator.leader_election("reports"), locator.storage()
    ...         async with election.lead("worker-1", "host-1") as leadership:
    ...             await storage.put("reports/today", "done", fence=leadership)
    ...         print(await storage.fetch("reports/today"))
    >>> asyncio.run(main())
    done
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

from kip30.candidacy import Leadership
from kip30.codecs import STR, Codec
from kip30.election import Leader, LeaderChange, LeaderElection
from kip30.enrolment import Member
from kip30.errors import DefiniteError, NotElectedError, OutcomeUnknownError
from kip30.listeners import KeySetChange, ListenerRegistry, ValueChange
from kip30.locator import Configuration, PluginLocator
from kip30.membership import GroupMembership, MembershipChange
from kip30.records import Version
from kip30.storage import Fencing, Storage, Versioned

T = TypeVar("T")
E = TypeVar("E")

AsyncListener = Callable[[E], Awaitable[object]]


class _Listeners:
    """Coroutine functions and the plain callables that stand for them below."""

    def __init__(self) -> None:
        self._standing: dict[Any, Callable[[Any], None]] = {}

    def stand_in(self, key: object, listener: AsyncListener[E]) -> Callable[[E], None]:
        loop = asyncio.get_running_loop()

        def call(event: E) -> None:
            try:
                asyncio.run_coroutine_threadsafe(_awaited(listener, event), loop).result()
            except CancelledError:
                return

        return self._standing.setdefault((key, listener), call)

    def gone(self, key: object, listener: AsyncListener[E]) -> Callable[[Any], None] | None:
        return self._standing.pop((key, listener), None)


async def _awaited(listener: AsyncListener[E], event: E) -> None:
    await listener(event)


class AsyncStorage(Generic[T]):
    """`kip30.Storage`, awaited."""

    def __init__(self, storage: Storage[T]) -> None:
        """Stand in front of *storage*."""
        self._storage = storage

    async def get(self, key: str) -> Versioned[T] | None:
        """See `kip30.Storage.get`."""
        return await asyncio.to_thread(self._storage.get, key)

    async def fetch(self, key: str) -> T | None:
        """See `kip30.Storage.fetch`."""
        return await asyncio.wrap_future(self._storage.fetch(key))

    async def fetch_many(self, keys: Iterable[str]) -> dict[str, T]:
        """See `kip30.Storage.fetch_many`."""
        return await asyncio.wrap_future(self._storage.fetch_many(keys))

    async def put(self, key: str, value: T, *, fence: Fencing | None = None) -> Version:
        """See `kip30.Storage.put`."""
        return await asyncio.to_thread(self._storage.put, key, value, fence=fence)

    async def put_many(
        self, values: Mapping[str, T], *, fence: Fencing | None = None
    ) -> dict[str, Version]:
        """See `kip30.Storage.put_many`."""
        return await asyncio.to_thread(self._storage.put_many, values, fence=fence)

    async def update(self, key: str, value: T, *, fence: Fencing | None = None) -> Version:
        """See `kip30.Storage.update`."""
        return await asyncio.to_thread(self._storage.update, key, value, fence=fence)

    async def compare_and_set(
        self, key: str, expected: Version, value: T, *, fence: Fencing | None = None
    ) -> Version:
        """See `kip30.Storage.compare_and_set`."""
        call = self._storage.compare_and_set
        return await asyncio.to_thread(call, key, expected, value, fence=fence)

    async def delete(
        self, key: str, *, expected: Version | None = None, fence: Fencing | None = None
    ) -> None:
        """See `kip30.Storage.delete`."""
        await asyncio.to_thread(self._storage.delete, key, expected=expected, fence=fence)

    async def list(self, namespace: str) -> Sequence[str]:
        """Return all that `kip30.Storage.list` yields."""
        return await asyncio.to_thread(lambda: tuple(self._storage.list(namespace)))


class AsyncListenerRegistry(Generic[T]):
    """`kip30.ListenerRegistry` for coroutine functions."""

    def __init__(self, registry: ListenerRegistry[T]) -> None:
        """Stand in front of *registry*."""
        self._registry = registry
        self._listeners = _Listeners()

    async def add_value_change_listener(
        self, key: str, listener: AsyncListener[ValueChange[T]], *, initial: bool = False
    ) -> None:
        """See `kip30.ListenerRegistry.add_value_change_listener`."""
        call = self._listeners.stand_in(("value", key), listener)
        add = self._registry.add_value_change_listener
        await asyncio.to_thread(add, key, call, initial=initial)

    async def remove_value_change_listener(
        self, key: str, listener: AsyncListener[ValueChange[T]]
    ) -> None:
        """See `kip30.ListenerRegistry.remove_value_change_listener`."""
        if call := self._listeners.gone(("value", key), listener):
            await asyncio.to_thread(self._registry.remove_value_change_listener, key, call)

    async def add_key_set_change_listener(
        self, namespace: str, listener: AsyncListener[KeySetChange], *, initial: bool = False
    ) -> None:
        """See `kip30.ListenerRegistry.add_key_set_change_listener`."""
        call = self._listeners.stand_in(("keys", namespace), listener)
        add = self._registry.add_key_set_change_listener
        await asyncio.to_thread(add, namespace, call, initial=initial)

    async def remove_key_set_change_listener(
        self, namespace: str, listener: AsyncListener[KeySetChange]
    ) -> None:
        """See `kip30.ListenerRegistry.remove_key_set_change_listener`."""
        if call := self._listeners.gone(("keys", namespace), listener):
            await asyncio.to_thread(self._registry.remove_key_set_change_listener, namespace, call)


class AsyncGroupMembership(Generic[T]):
    """`kip30.GroupMembership`, awaited."""

    def __init__(self, membership: GroupMembership[T]) -> None:
        """Stand in front of *membership*."""
        self._membership = membership
        self._listeners = _Listeners()

    async def join(self, member_id: str, data: T) -> Member:
        """See `kip30.GroupMembership.join`."""
        return await asyncio.to_thread(self._membership.join, member_id, data)

    async def update(self, member_id: str, data: T) -> None:
        """See `kip30.GroupMembership.update`."""
        await asyncio.to_thread(self._membership.update, member_id, data)

    async def leave(self, member_id: str) -> None:
        """See `kip30.GroupMembership.leave`."""
        await asyncio.to_thread(self._membership.leave, member_id)

    async def membership(self) -> Mapping[str, T]:
        """See `kip30.GroupMembership.membership`."""
        return await asyncio.to_thread(self._membership.membership)

    async def membership_list(self) -> frozenset[str]:
        """See `kip30.GroupMembership.membership_list`."""
        return await asyncio.to_thread(self._membership.membership_list)

    async def add_listener(
        self, listener: AsyncListener[MembershipChange[T]], *, initial: bool = False
    ) -> None:
        """See `kip30.GroupMembership.add_listener`."""
        call = self._listeners.stand_in("group", listener)
        await asyncio.to_thread(self._membership.add_listener, call, initial=initial)

    async def remove_listener(self, listener: AsyncListener[MembershipChange[T]]) -> None:
        """See `kip30.GroupMembership.remove_listener`."""
        if call := self._listeners.gone("group", listener):
            await asyncio.to_thread(self._membership.remove_listener, call)


class AsyncLeaderElection(Generic[T]):
    """`kip30.LeaderElection`, awaited."""

    def __init__(self, election: LeaderElection[T]) -> None:
        """Stand in front of *election*."""
        self._election = election
        self._listeners = _Listeners()

    async def get_leader(self) -> Leader[T] | None:
        """See `kip30.LeaderElection.get_leader`."""
        return await asyncio.to_thread(self._election.get_leader)

    async def nominate(self, candidate: str, data: T) -> bool:
        """See `kip30.LeaderElection.nominate`."""
        return await asyncio.to_thread(self._election.nominate, candidate, data)

    async def resign(self, candidate: str) -> None:
        """See `kip30.LeaderElection.resign`."""
        await asyncio.to_thread(self._election.resign, candidate)

    async def wait_elected(
        self, candidate: str, timeout_seconds: float | None = None
    ) -> Leadership | None:
        """See `kip30.LeaderElection.wait_elected`."""
        return await asyncio.to_thread(self._election.wait_elected, candidate, timeout_seconds)

    def leadership(self, candidate: str) -> Leadership | None:
        """See `kip30.LeaderElection.leadership`: answered at once, nothing to await."""
        return self._election.leadership(candidate)

    @asynccontextmanager
    async def lead(
        self, candidate: str, data: T, *, timeout_seconds: float | None = None
    ) -> AsyncGenerator[Leadership]:
        """Nominate, wait until elected, resign; see `kip30.LeaderElection.lead`.

        A task that is cancelled, in the block or waiting to be elected, has resigned when it
        ends. *timeout_seconds* counts from the end of the first attempt.

        Raises:
            NotElectedError: Not elected within *timeout_seconds*. The candidate has resigned.
        """
        # Threads of its own: the loop's could all be waiting to be elected.
        own = ThreadPoolExecutor(2, "kip30-lead")
        run = partial(asyncio.get_running_loop().run_in_executor, own)
        nominating = run(self._election.nominate, candidate, data)
        try:
            await asyncio.shield(nominating)
            leadership = await run(self._election.wait_elected, candidate, timeout_seconds)
            if leadership is None:
                raise NotElectedError(f"{candidate!r} was not elected")
            yield leadership
        finally:
            await asyncio.shield(self._withdrawn(candidate, nominating, own))

    async def _withdrawn(
        self, candidate: str, nominating: asyncio.Future[bool], own: ThreadPoolExecutor
    ) -> None:
        """Resign, but not before the nomination has been made."""
        await asyncio.wait([nominating])
        with suppress(DefiniteError, OutcomeUnknownError):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(own, self._election.resign, candidate)
        own.shutdown(wait=False)

    async def add_listener(
        self, listener: AsyncListener[LeaderChange[T]], *, initial: bool = False
    ) -> None:
        """See `kip30.LeaderElection.add_listener`."""
        call = self._listeners.stand_in("service", listener)
        await asyncio.to_thread(self._election.add_listener, call, initial=initial)

    async def remove_listener(self, listener: AsyncListener[LeaderChange[T]]) -> None:
        """See `kip30.LeaderElection.remove_listener`."""
        if call := self._listeners.gone("service", listener):
            await asyncio.to_thread(self._election.remove_listener, call)


class AsyncPluginLocator:
    """`kip30.PluginLocator` for asyncio; an async context manager."""

    def __init__(self, config: Configuration = None) -> None:
        """Prepare; entering the ``async with`` block opens the store of *config*."""
        self._locator = PluginLocator()
        self._config = config

    async def __aenter__(self) -> Self:
        """Open the store; see `kip30.PluginLocator.startup`."""
        await asyncio.to_thread(self._locator.startup, self._config)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the store; see `kip30.PluginLocator.close`."""
        await asyncio.to_thread(self._locator.close)

    def storage(self, codec: Codec[Any] = STR) -> AsyncStorage[Any]:
        """See `kip30.PluginLocator.storage`."""
        return AsyncStorage(self._locator.storage(codec))

    def listener_registry(self, codec: Codec[Any] = STR) -> AsyncListenerRegistry[Any]:
        """See `kip30.PluginLocator.listener_registry`."""
        return AsyncListenerRegistry(self._locator.listener_registry(codec))

    def group_membership(self, group: str, codec: Codec[Any] = STR) -> AsyncGroupMembership[Any]:
        """See `kip30.PluginLocator.group_membership`."""
        return AsyncGroupMembership(self._locator.group_membership(group, codec))

    def leader_election(self, service: str, codec: Codec[Any] = STR) -> AsyncLeaderElection[Any]:
        """See `kip30.PluginLocator.leader_election`."""
        return AsyncLeaderElection(self._locator.leader_election(service, codec))
