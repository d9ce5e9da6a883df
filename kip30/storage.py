"""KIP-30's key-value storage: one portable class over every store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from kip30.codecs import Codec
from kip30.driver import Capability
from kip30.driver.kit.futures import mapped
from kip30.driver.records import (
    Condition,
    Entry,
    Fence,
    Guard,
    NamePage,
    Version,
    Write,
    check_fence,
    check_guards,
    check_version,
    new_nonce,
)
from kip30.errors import Kip30Error, OutcomeUnknownError, PartialWriteError, UsageError
from kip30.names import Key, check_namespace, keys_in, parse_key
from kip30.runtime.base_handle import Handle
from kip30.runtime.lost_answers import Wait, settle, write_and_settle
from kip30.runtime.open_store import OpenStore

T = TypeVar("T")
_Entries = list[Entry | None]

Guards = Mapping[str, Version]
"""Keys, and the version that each must still have for a write to be done."""

PAGE = 1000
"""Number of names read at once from a store that can read a part of them."""


class Fencing(Protocol):
    """Anything with a service and an epoch: a `kip30.Leadership` or a `kip30.Fence`."""

    @property
    def service(self) -> str:
        """The service that is led."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch of the leadership."""
        ...


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value and the version of the write that stored it."""

    value: T
    version: Version


class Storage(Handle, Generic[T]):
    """Values by key, shared by every client of the store. Thread-safe.

    Reads are linearizable: they see every write that was acknowledged, to any
    client, before they began. Writes of several keys are *not* one transaction.

    A key is ``namespace/name``; see `kip30.names`. Every method that takes a key may raise
    `InvalidNameError`, and every method `ClosedError` or `LifecycleError`; then nothing was
    sent. Every write may raise `CodecError` or `ValueTooLargeError` (nothing was sent),
    `FencedError`, `GuardError` and `UnavailableError` (nothing was written), and
    `OutcomeUnknownError`.

    With *fence*, a write is done only while that leadership's epoch is the newest of its
    service, decided by the store in the same operation.

    With *guards*, a write is done only while each of these keys has the version that the mapping
    gives it, decided by the store in the same operation. They are at most four other keys in the
    namespace of the written key; else `UsageError` is raised and nothing was sent. A guard that
    was deleted, even if created again, refuses the write with `GuardError`. The fence is decided
    first, then the guards, then the method's own condition. A store without ``guards`` raises
    `UnsupportedError`.
    """

    def __init__(self, store: OpenStore, codec: Codec[T], owner: object = None) -> None:
        """Use `PluginLocator.storage` instead."""
        super().__init__(store, owner)
        self._driver = store.drivers.storage
        self._codec = codec

    def get(self, key: str) -> Versioned[T] | None:
        """Return the value and version of *key*, or None if there is none.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
            CodecError: This storage's codec cannot decode the stored bytes.
        """
        self._check()  # not by _read and _versioned: the most frequent call
        entry = self._store.wait(self._driver.read((parse_key(key),)))[0]
        return None if entry is None else Versioned(self._codec.decode(entry.data), entry.version)

    def fetch(self, key: str) -> Future[T | None]:
        """Return a future of the value of *key*, or of None if there is none.

        The future ends by the operation timeout with a value or an error of `get`. Its callbacks
        run on kip30's own threads, where they may block, or at once if it is done. `close`
        calls those that have not begun when the locator is closed. In a forked child, waiting for a
        future of the parent raises `LifecycleError` unless it was done before.
        """
        self._check()
        return mapped(self._driver.read((parse_key(key),)), self._first, self._store.future)

    def fetch_many(self, keys: Iterable[str]) -> Future[dict[str, T]]:
        """Return a future of the values of those *keys* that have one.

        The values need not be from one moment; each is as fresh as that of `get`. Callbacks of the
        future run as those of `fetch` do.
        """
        wanted = distinct_keys(keys)
        read = self._read(wanted)
        return mapped(read, lambda entries: self._found(wanted, entries), self._store.future)

    def put(
        self, key: str, value: T, *, fence: Fencing | None = None, guards: Guards | None = None
    ) -> Version:
        """Create *key* and return its version.

        Raises:
            KeyExistsError: The key exists, written by another call. It is unchanged.
        """
        return self._settled(self._creation(key, value, fence, guards))

    def update(
        self, key: str, value: T, *, fence: Fencing | None = None, guards: Guards | None = None
    ) -> Version:
        """Replace the present value of *key*, and return the new version.

        An equal value counts: the version grows and listeners are notified.

        Raises:
            KeyMissingError: There is no such key. None is created.
        """
        return self._settled(self._replacement(key, value, fence, guards))

    def set(
        self, key: str, value: T, *, fence: Fencing | None = None, guards: Guards | None = None
    ) -> Version:
        """Create *key* or replace its value, whichever is needed; return the new version.

        One unconditional write: unlike with `put` followed by `update`, no other client can write
        in between. The last of several concurrent calls wins.

        After a lost answer the record is read again: if it is this call's, its version is
        returned. Otherwise the outcome is unknown, because a second write could replace a newer
        value of another client.

        Raises:
            OutcomeUnknownError: The value may have been written, and may have been replaced since.
        """
        return self._settled(self._upsert(key, value, fence, guards))

    def compare_and_set(
        self,
        key: str,
        expected: Version,
        value: T,
        *,
        fence: Fencing | None = None,
        guards: Guards | None = None,
    ) -> Version:
        """Replace the value of *key* if its version is still *expected*; return the new one.

        Raises:
            VersionConflictError: The key has another version. It is unchanged.
            KeyMissingError: There is no such key. None is created.
            UnsupportedError: The store has no ``compare-and-set``.
        """
        return self._settled(self._exchange(key, expected, value, fence, guards))

    def delete(
        self,
        key: str,
        *,
        expected: Version | None = None,
        fence: Fencing | None = None,
        guards: Guards | None = None,
    ) -> None:
        """Delete *key*; with *expected*, only at that version.

        After a lost answer a deletion cannot be distinguished from another client's: if the key is
        gone by then, `OutcomeUnknownError` is raised.

        Raises:
            KeyMissingError: There is no such key.
            VersionConflictError: The key has another version. It is not deleted.
            UnsupportedError: With *expected*: the store has no ``compare-and-set``.
        """
        self._settled(self._deletion(key, expected, fence, guards))

    def put_many(
        self,
        values: Mapping[str, T],
        *,
        fence: Fencing | None = None,
        guards: Guards | None = None,
    ) -> dict[str, Version]:
        """Create each key of *values*, each on its own, in few round trips.

        *fence* and *guards* hold for each of the writes.

        Raises:
            PartialWriteError: Some were not created; the error says which, and why.
        """
        self._check()
        if not isinstance(cast("object", values), Mapping):
            raise UsageError(f"values must map keys to values, not {type(values).__name__}")
        keys = [*map(parse_key, values)]
        rule = self._fence(fence)
        unchanged = () if guards is None else self._guards(guards, keys)
        writes = [
            Write(key, new_nonce(), self._encode(value), Condition.ABSENT, rule, unchanged)
            for key, value in zip(keys, values.values(), strict=True)
        ]
        outcomes = self._write_each(writes)
        done = {key: new for key, new in outcomes.items() if isinstance(new, Version)}
        failed = {key: new for key, new in outcomes.items() if isinstance(new, Kip30Error)}
        if failed:
            raise PartialWriteError({key: str(new) for key, new in done.items()}, failed)
        return done

    def list(self, namespace: str) -> Iterator[str]:
        """Yield the keys of *namespace*, one level deep, in the order of their UTF-8 bytes.

        Reads in pages: keys that are created or deleted meanwhile may be missing; all others are
        yielded exactly once. Each page may raise `UnavailableError`.

        Raises:
            UnsupportedError: The store has no ``listing``.
        """
        return self._pages(self._listable(namespace))

    def last_write(self, key: str) -> tuple[Version, str] | None:
        """Return version and nonce of *key*, or None if there is none. For the library.

        A copy of the key in another store may have its version, and has another nonce.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
        """
        entry = self._store.wait(self._read([key]))[0]
        return None if entry is None else (entry.version, entry.nonce)

    # -- what `kip30.aio` shares: requests and answers, without the waiting in between

    def _read(self, keys: Sequence[str]) -> Future[_Entries]:
        self._check()
        return self._driver.read(tuple(map(parse_key, keys)))

    def _creation(self, key: str, value: T, fence: Fencing | None, guards: Guards | None) -> Write:
        return self._request(key, self._encode(value), Condition.ABSENT, fence, guards)

    def _replacement(
        self, key: str, value: T, fence: Fencing | None, guards: Guards | None
    ) -> Write:
        return self._request(key, self._encode(value), Condition.PRESENT, fence, guards)

    def _upsert(self, key: str, value: T, fence: Fencing | None, guards: Guards | None) -> Write:
        return self._request(key, self._encode(value), Condition.ANY, fence, guards)

    def _exchange(
        self,
        key: str,
        expected: Version,
        value: T,
        fence: Fencing | None,
        guards: Guards | None,
    ) -> Write:
        self._check()
        condition = check_version(expected)
        self._store.require(Capability.COMPARE_AND_SET)
        return self._request(key, self._encode(value), condition, fence, guards)

    def _deletion(
        self, key: str, expected: Version | None, fence: Fencing | None, guards: Guards | None
    ) -> Write:
        self._check()
        condition = Condition.PRESENT if expected is None else check_version(expected)
        if expected is not None:
            self._store.require(Capability.COMPARE_AND_SET)
        return self._request(key, None, condition, fence, guards)

    def _listable(self, namespace: str) -> str:
        self._check()
        self._store.require(Capability.LISTING)
        return check_namespace(namespace)

    def _page(self, namespace: str, after: str) -> Future[NamePage]:
        return self._driver.list_names(namespace, after, PAGE)

    def _request(
        self,
        key: str,
        data: bytes | None,
        condition: Condition | Version,
        fence: Fencing | None,
        guards: Guards | None,
    ) -> Write:
        self._check()
        place = parse_key(key)
        rule = self._fence(fence)
        unchanged = () if guards is None else self._guards(guards, (place,))
        return Write(place, new_nonce(), data, condition, rule, unchanged)

    def _settled(self, write: Write) -> Version:
        return write_and_settle(self._driver, write, self._store.asking())

    def _encode(self, value: T) -> bytes:
        return self._store.encode(self._codec, value)

    def _fence(self, fence: Fencing | None) -> Fence | None:
        if fence is None:
            return None
        checked = check_fence(fence)
        self._store.require(Capability.FENCING)
        return checked

    def _guards(self, guards: Guards, written: Sequence[Key]) -> tuple[Guard, ...]:
        checked = check_guards(guards, written)
        if checked:
            self._store.require(Capability.GUARDS)
        return checked

    def _write_each(self, writes: Iterable[Write]) -> dict[str, Version | Kip30Error]:
        asked = list(writes)
        futures = self._driver.write_many(asked)
        wait = self._store.asking()
        return {
            str(write.key): self._outcome(write, future, wait)
            for write, future in zip(asked, futures, strict=True)
        }

    def _outcome(self, write: Write, future: Future[Version], wait: Wait) -> Version | Kip30Error:
        try:
            try:
                return wait(future)
            except OutcomeUnknownError as error:
                return settle(self._driver, write, wait, error)
        except Kip30Error as error:
            return error

    def _versioned(self, entries: _Entries) -> Versioned[T] | None:
        entry = entries[0]
        return None if entry is None else Versioned(self._codec.decode(entry.data), entry.version)

    def _first(self, entries: Sequence[Entry | None]) -> T | None:
        entry = entries[0]
        return None if entry is None else self._codec.decode(entry.data)

    def _found(self, keys: Iterable[str], entries: Iterable[Entry | None]) -> dict[str, T]:
        pairs = zip(keys, entries, strict=True)
        return {key: self._codec.decode(entry.data) for key, entry in pairs if entry is not None}

    def _pages(self, namespace: str) -> Iterator[str]:
        after = ""
        while True:
            page = self._store.wait(self._page(namespace, after))
            yield from keys_in(namespace, page.names)
            if page.is_last:
                return
            after = page.names[-1]


def distinct_keys(keys: Iterable[str]) -> list[str]:
    """Return *keys* in their order, each once.

    Raises:
        UsageError: It is one key, or no iterable. Nothing was sent.
    """
    given = cast("object", keys)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"keys must be several keys, not {type(keys).__name__}: pass a list")
    return list(dict.fromkeys(keys))
