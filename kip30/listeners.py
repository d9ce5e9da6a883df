"""KIP-30's listener registry: callbacks for changes of a value or of a set of keys."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from kip30.codecs import Codec
from kip30.connection import Connection
from kip30.handle import Handle
from kip30.names import Key, check_namespace, parse_key
from kip30.records import Entry, Kind, Snapshot, Target, Version

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValueChange(Generic[T]):
    """The new state of a key; value and version are None when the key is gone."""

    key: str
    value: T | None
    version: Version | None


@dataclass(frozen=True, slots=True)
class KeySetChange:
    """What came to and went from the keys of a namespace, and all that are there now."""

    namespace: str
    added: frozenset[str]
    removed: frozenset[str]
    keys: frozenset[str]


class ListenerRegistry(Handle, Generic[T]):
    """Callbacks for changes made by any client, this one included. Thread-safe.

    Promised for each callback: never two calls at once, versions never go back, no version
    twice, and the final state always arrives, also after the connection, the session or the
    store itself was gone for a while. When a callback runs, a read sees that state or a
    newer one. A callback that raises is logged; one that blocks delays only itself.

    Not promised: states in between. Changes that follow each other quickly may be merged.

    Adding the same callback twice for one key or namespace counts once; removing one that
    is not there does nothing. After a removal returns, no call starts. Callbacks may use
    every method of kip30, their own removal and closing included. A callback that cannot be
    called or hashed is a `UsageError`, and nothing is registered.
    """

    def __init__(self, connection: Connection, codec: Codec[T], owner: object = None) -> None:
        """Use `PluginLocator.listener_registry` instead."""
        super().__init__(connection, owner)
        self._codec = codec

    def add_value_change_listener(
        self, key: str, callback: Callable[[ValueChange[T]], object], *, initial: bool = False
    ) -> None:
        """Call *callback* whenever *key* is created, updated or deleted after this returns.

        With *initial*, also once for the present state, absent or not.

        Raises:
            InvalidNameError: *key* is no key. Nothing is registered.
            UnavailableError: The store did not answer in time. Nothing is registered.
        """
        parsed = parse_key(key)
        target = Target(Kind.VALUE, parsed.namespace, parsed.name)
        self._add(target, partial(_value_change, parsed, self._codec), callback, initial)

    def remove_value_change_listener(
        self, key: str, callback: Callable[[ValueChange[T]], object]
    ) -> None:
        """Start no call of *callback* for *key* after this returns."""
        parsed = parse_key(key)
        self._subscriptions.remove(Target(Kind.VALUE, parsed.namespace, parsed.name), callback)

    def add_key_set_change_listener(
        self, namespace: str, callback: Callable[[KeySetChange], object], *, initial: bool = False
    ) -> None:
        """Call *callback* whenever keys come to or go from *namespace* after this returns.

        One level deep: ``a/b/c`` is a key of ``a/b`` and not of ``a``. Updates of values do
        not count. With *initial*, also once for the present set.

        Raises:
            InvalidNameError: *namespace* is none. Nothing is registered.
            UnavailableError: The store did not answer in time. Nothing is registered.
        """
        target = Target(Kind.NAMESPACE, check_namespace(namespace))
        self._add(target, partial(_key_set_change, namespace), callback, initial)

    def remove_key_set_change_listener(
        self, namespace: str, callback: Callable[[KeySetChange], object]
    ) -> None:
        """Start no call of *callback* for *namespace* after this returns."""
        self._subscriptions.remove(Target(Kind.NAMESPACE, check_namespace(namespace)), callback)

    def _add(
        self,
        target: Target,
        describe: Callable[[Snapshot | None, Snapshot], Any],
        callback: Callable[[Any], object],
        initial: bool,  # noqa: FBT001  private; the public methods take it by keyword
    ) -> None:
        self._check()
        self._subscriptions.add(target, describe, callback, initial=initial)


def _value_change(
    key: Key, codec: Codec[T], old: Snapshot | None, new: Snapshot
) -> ValueChange[T] | None:
    before = old.entries.get(key.name) if old else None
    entry = new.entries.get(key.name)
    if old and (before and _life(before)) == (entry and _life(entry)):
        return None
    if entry is None:
        return ValueChange(str(key), None, None)
    return ValueChange(str(key), codec.decode(entry.data), entry.version)


def _life(entry: Entry) -> tuple[Version, str]:
    """Return what no other write has, also of a store that came back empty and counts anew."""
    return entry.version, entry.nonce


def _key_set_change(namespace: str, old: Snapshot | None, new: Snapshot) -> KeySetChange | None:
    before = old.entries.keys() if old else frozenset[str]()
    added, removed = new.entries.keys() - before, before - new.entries.keys()
    if old and not added and not removed:
        return None
    return KeySetChange(
        namespace, _keys(namespace, added), _keys(namespace, removed), _keys(namespace, new.entries)
    )


def _keys(namespace: str, names: Any) -> frozenset[str]:
    return frozenset(str(Key(namespace, name)) for name in names)
