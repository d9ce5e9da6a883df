"""`kip30.Storage` for asyncio."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

from kip30.aio.async_handle import AsyncHandle
from kip30.driver.records import Entry, NamePage, Version, Write
from kip30.errors import (
    ClosedError,
    LifecycleError,
    OutcomeUnknownError,
    UnavailableError,
)
from kip30.names import keys_in
from kip30.runtime.base_handle import LoopHandle
from kip30.runtime.lost_answers import settle
from kip30.storage import Fencing, Guards, Storage, Versioned, distinct_keys

T = TypeVar("T")


class StorageRequests(Storage[T], LoopHandle):
    """The requests of a `kip30.Storage` and the decoding of answers, without the waiting."""

    def read(self, keys: Sequence[str]) -> Future[list[Entry | None]]:
        """Ask for *keys*."""
        return self._read(keys)

    def versioned(self, entries: list[Entry | None]) -> Versioned[T] | None:
        """Return what the first of *entries* holds."""
        return self._versioned(entries)

    def found(self, keys: Sequence[str], entries: Sequence[Entry | None]) -> dict[str, T]:
        """Return the values of those *keys* that have *entries*."""
        return self._found(keys, entries)

    def creation(self, key: str, value: T, fence: Fencing | None, guards: Guards | None) -> Write:
        """Return what `put` writes."""
        return self._creation(key, value, fence, guards)

    def replacement(
        self, key: str, value: T, fence: Fencing | None, guards: Guards | None
    ) -> Write:
        """Return what `update` writes."""
        return self._replacement(key, value, fence, guards)

    def upsert(self, key: str, value: T, fence: Fencing | None, guards: Guards | None) -> Write:
        """Return what `set` writes."""
        return self._upsert(key, value, fence, guards)

    def exchange(
        self,
        key: str,
        expected: Version,
        value: T,
        fence: Fencing | None,
        guards: Guards | None,
    ) -> Write:
        """Return what `compare_and_set` writes."""
        return self._exchange(key, expected, value, fence, guards)

    def deletion(
        self, key: str, expected: Version | None, fence: Fencing | None, guards: Guards | None
    ) -> Write:
        """Return what `delete` writes."""
        return self._deletion(key, expected, fence, guards)

    def listable(self, namespace: str) -> str:
        """Return *namespace* if it can be listed."""
        return self._listable(namespace)

    def page(self, namespace: str, after: str) -> Future[NamePage]:
        """Ask for the names that follow *after*."""
        return self._page(namespace, after)


class AsyncStorage(AsyncHandle[StorageRequests[T]], Generic[T]):
    """`kip30.Storage`, awaited: with the same promises, arguments and errors.

    Where the store's driver does not block, no call holds a thread, except that the outcome of a
    write whose answer was lost is settled on one.
    """

    async def get(self, key: str) -> Versioned[T] | None:
        """See `kip30.Storage.get`."""
        entries = await self._bridge.read(partial(self._handle.read, (key,)))
        return self._handle.versioned(entries)

    async def fetch(self, key: str) -> T | None:
        """See `kip30.Storage.fetch`."""
        found = await self.get(key)
        return None if found is None else found.value

    async def fetch_many(self, keys: Iterable[str]) -> dict[str, T]:
        """See `kip30.Storage.fetch_many`."""
        wanted = distinct_keys(keys)
        entries = await self._bridge.read(partial(self._handle.read, wanted))
        return self._handle.found(wanted, entries)

    async def put(
        self, key: str, value: T, *, fence: Fencing | None = None, guards: Guards | None = None
    ) -> Version:
        """See `kip30.Storage.put`."""
        return await self._write(partial(self._handle.creation, key, value, fence, guards))

    async def put_many(
        self,
        values: Mapping[str, T],
        *,
        fence: Fencing | None = None,
        guards: Guards | None = None,
    ) -> dict[str, Version]:
        """See `kip30.Storage.put_many`."""
        put = partial(self._handle.put_many, values, fence=fence, guards=guards)
        return await self._bridge.call(put)

    async def update(
        self, key: str, value: T, *, fence: Fencing | None = None, guards: Guards | None = None
    ) -> Version:
        """See `kip30.Storage.update`."""
        return await self._write(partial(self._handle.replacement, key, value, fence, guards))

    async def set(
        self, key: str, value: T, *, fence: Fencing | None = None, guards: Guards | None = None
    ) -> Version:
        """See `kip30.Storage.set`."""
        return await self._write(partial(self._handle.upsert, key, value, fence, guards))

    async def compare_and_set(
        self,
        key: str,
        expected: Version,
        value: T,
        *,
        fence: Fencing | None = None,
        guards: Guards | None = None,
    ) -> Version:
        """See `kip30.Storage.compare_and_set`."""
        return await self._write(
            partial(self._handle.exchange, key, expected, value, fence, guards)
        )

    async def delete(
        self,
        key: str,
        *,
        expected: Version | None = None,
        fence: Fencing | None = None,
        guards: Guards | None = None,
    ) -> None:
        """See `kip30.Storage.delete`."""
        await self._write(partial(self._handle.deletion, key, expected, fence, guards))

    async def list(self, namespace: str) -> Sequence[str]:
        """Return all keys that `kip30.Storage.list` yields."""
        listable = self._handle.listable(namespace)
        names: list[str] = []
        while True:
            after = names[-1] if names else ""
            page = await self._bridge.read(partial(self._handle.page, listable, after))
            names += page.names
            if page.is_last:
                return tuple(keys_in(namespace, names))

    async def _write(self, prepare: Callable[[], Write]) -> Version:
        """Write once what *prepare* makes.

        The outcome of a lost answer is settled as the blocking calls do it.
        """
        driver, bridge = self._bridge.store.drivers.storage, self._bridge
        await bridge.begin()
        async with bridge.write_turns as until:
            wait, write = bridge.store.asking(), prepare()
            try:
                return await bridge.write(partial(driver.write, write), until)
            except OutcomeUnknownError as error:
                if wait.is_over():
                    raise
                try:
                    look = bridge.submit(partial(settle, driver, write, wait, error))
                    return await bridge.finish(look, OutcomeUnknownError, until)
                except (UnavailableError, ClosedError, LifecycleError) as unseen:
                    # The write may have been done: these errors would deny that.
                    raise error from unseen
