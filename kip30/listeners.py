"""KIP-30's listener registry: callbacks for changes of a value or of a set of keys."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from kip30.codecs import Codec
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30.names import Key, check_namespace, parse_key
from kip30.runtime.base_handle import Handle
from kip30.runtime.key_set_changes import KeySetChange, KeySets
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Describe

__all__ = ["KeySetChange", "ListenerRegistry", "ValueChange"]

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ValueChange(Generic[T]):
    """The new state of a key; value and version are None when the key is gone."""

    key: str
    value: T | None
    version: Version | None


class ListenerRegistry(Handle, Generic[T]):
    """Callbacks for changes made by any client, this one included. Thread-safe.

    Promised for each registration, which is one callback for one key or namespace through one
    registry: never two calls at once, versions never go back, no version twice, and the final
    state always arrives, also after the connection, the session or the store itself was gone for a
    while. When a callback runs, a read sees that state or a newer one. A callback that raises is
    logged; one that blocks delays only its own next call.

    A callback with several registrations may be called for each of them at the same time, and so
    may one that is removed and added again while it runs: use a lock if that matters.

    Not promised: states in between. Changes that follow each other quickly may be merged.

    Unreadable records are skipped: a value that the codec cannot decode, and a record that is
    another program's, a newer kip30's or damaged. A warning is logged once for each, and readable
    records are still delivered.

    Adding the same callback twice for one key or namespace counts once; removing one that
    is not there does nothing. After a removal returns, no call starts. Callbacks added through one
    registry of a locator can be removed through another one. Callbacks may use every method of
    kip30, including their removal and `close`. A callback that cannot be called or hashed raises
    `UsageError`, and nothing is registered.
    """

    def __init__(self, store: OpenStore, codec: Codec[T], owner: object = None) -> None:
        """Use `PluginLocator.listener_registry` instead."""
        super().__init__(store, owner)
        self._codec = codec
        # By namespace, as long as it has a listener.
        self._key_sets: WeakValueDictionary[str, KeySets] = WeakValueDictionary()
        self._lock = threading.Lock()

    def add_value_change_listener(
        self, key: str, callback: Callable[[ValueChange[T]], object], *, initial: bool = False
    ) -> None:
        """Call *callback* whenever *key* is created, updated or deleted after this returns.

        With *initial*, also once for the present state, absent or not.

        Raises:
            InvalidNameError: *key* is not a valid key. Nothing is registered.
            UnavailableError: The store did not answer in time. Nothing is registered.
        """
        parsed = parse_key(key)
        target = Target(Kind.VALUE, parsed.namespace, parsed.name)
        self._add(target, _ValueChanges(parsed, self._codec), callback, initial)

    def remove_value_change_listener(
        self, key: str, callback: Callable[[ValueChange[T]], object]
    ) -> None:
        """Remove *callback* for *key*: no call of it starts after this returns."""
        parsed = parse_key(key)
        self._callbacks.remove(Target(Kind.VALUE, parsed.namespace, parsed.name), callback)

    def add_key_set_change_listener(
        self, namespace: str, callback: Callable[[KeySetChange], object], *, initial: bool = False
    ) -> None:
        """Call *callback* whenever keys of *namespace* are created or deleted after this returns.

        One level deep: ``a/b/c`` is a key of ``a/b`` and not of ``a``. Updates of values do
        not count. With *initial*, also once for the present set.

        Raises:
            InvalidNameError: *namespace* is not a valid namespace. Nothing is registered.
            UnavailableError: The store did not answer in time. Nothing is registered.
        """
        target = Target(Kind.NAMESPACE, check_namespace(namespace))
        sets = self._sets_of(namespace)
        self._add(target, sets.change, callback, initial)

    def remove_key_set_change_listener(
        self, namespace: str, callback: Callable[[KeySetChange], object]
    ) -> None:
        """Remove *callback* for *namespace*: no call of it starts after this returns."""
        self._callbacks.remove(Target(Kind.NAMESPACE, check_namespace(namespace)), callback)

    def _sets_of(self, namespace: str) -> KeySets:
        with self._lock:
            sets = self._key_sets.get(namespace)
            if sets is None:
                sets = self._key_sets[namespace] = KeySets(namespace)
            return sets

    def _add(
        self,
        target: Target,
        describe: Describe[Any],
        callback: Callable[[Any], object],
        initial: bool,  # noqa: FBT001  private; the public methods take it by keyword
    ) -> None:
        self._check()
        self._callbacks.add(target, describe, callback, initial=initial)


class _ValueChanges(Generic[T]):
    """Describes changes of one key to one listener. Only one thread at a time may call."""

    def __init__(self, key: Key, codec: Codec[T]) -> None:
        self._key = key
        self._codec = codec
        # The last state that could be read: an unreadable one between two others must not hide that
        # those differ, or that they do not. None before the first.
        self._known: tuple[_Life | None] | None = None
        self._has_begun = False

    def __call__(
        self, old: Snapshot | None, new: Snapshot, names: frozenset[str] | None
    ) -> ValueChange[T] | None:
        del names  # a value has one entry at most
        if not self._has_begun:
            self._has_begun = True
            self._known = None if old is None else self._readable(old)
        known, now = self._known, self._readable(new)
        if now is None or now == known:
            return None
        self._known = now
        return self._change(new.entries.get(self._key.name))

    def _readable(self, state: Snapshot) -> "tuple[_Life | None] | None":
        entry = state.entries.get(self._key.name)
        return None if state.unreadable else (entry and _life(entry),)

    def _change(self, entry: Entry | None) -> ValueChange[T] | None:
        key = str(self._key)
        if entry is None:
            return ValueChange(key, None, None)
        try:
            return ValueChange(key, self._codec.decode(entry.data), entry.version)
        except Exception as error:  # noqa: BLE001  a user's codec may raise anything
            log.warning(
                "the value of %r at version %s is left out because codec %r cannot decode it: %s",
                *(str(self._key), entry.version, self._codec.name, error),
            )
            return None


_Life = tuple[Version, str]


def _life(entry: Entry) -> _Life:
    """Return what identifies a write, even if the store came back empty and counts from 1 again."""
    return entry.version, entry.nonce
