"""`kip30.coordinator.GuardedStorage` for asyncio."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kip30.aio.bridge import Bridge
from kip30.aio.storage import AsyncStorage
from kip30.coordinator.member_guards import MemberGuards
from kip30.driver.records import Version
from kip30.errors import GuardError, IllegalGenerationError
from kip30.storage import Guards, Versioned

T = TypeVar("T")
R = TypeVar("R")


class AsyncGuardedStorage(Generic[T]):
    """`kip30.coordinator.GuardedStorage`, awaited: with the same promises, arguments and errors."""

    def __init__(self, bridge: Bridge, storage: AsyncStorage[T], guards: MemberGuards) -> None:
        """Use `AsyncCoordinatorBase.storage` instead."""
        self._bridge = bridge
        self._storage = storage
        self._guards = guards

    async def get(self, name: str) -> Versioned[T] | None:
        """See `GuardedStorage.get`."""
        return await self._storage.get(self._guards.keys.data(name))

    async def put(self, name: str, value: T) -> Version:
        """See `GuardedStorage.put`."""
        key = self._guards.keys.data(name)
        return await self._guarded(lambda guards: self._storage.put(key, value, guards=guards))

    async def update(self, name: str, value: T) -> Version:
        """See `GuardedStorage.update`."""
        key = self._guards.keys.data(name)
        return await self._guarded(lambda guards: self._storage.update(key, value, guards=guards))

    async def set(self, name: str, value: T) -> Version:
        """See `GuardedStorage.set`."""
        key = self._guards.keys.data(name)
        return await self._guarded(lambda guards: self._storage.set(key, value, guards=guards))

    async def compare_and_set(self, name: str, expected: Version, value: T) -> Version:
        """See `GuardedStorage.compare_and_set`."""
        key = self._guards.keys.data(name)
        return await self._guarded(
            lambda guards: self._storage.compare_and_set(key, expected, value, guards=guards)
        )

    async def delete(self, name: str, *, expected: Version | None = None) -> None:
        """See `GuardedStorage.delete`."""
        key = self._guards.keys.data(name)
        await self._guarded(
            lambda guards: self._storage.delete(key, expected=expected, guards=guards)
        )

    async def list(self) -> Sequence[str]:
        """Return all names that `GuardedStorage.list` yields."""
        keys = self._guards.keys
        return tuple(keys.data_names(await self._storage.list(keys.group)))

    async def _guarded(self, write: Callable[[Guards], Coroutine[Any, Any, R]]) -> R:
        until = self._bridge.until()
        attempts = self._guards.attempts()
        guards = next(attempts)  # this sends no request; the next ones do
        while True:
            try:
                return await write(guards)
            except GuardError as error:
                if asyncio.get_running_loop().time() >= until:
                    raise IllegalGenerationError("the group keeps rebalancing") from error
            guards = await self._bridge.call(partial(next, attempts))
