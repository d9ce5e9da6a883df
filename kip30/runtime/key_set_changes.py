"""The keys of a namespace as its listeners see them, and how they change.

All listeners of one namespace share these sets, and the whole set is built only for callers that
read it: the cost of an event depends on the change, not on the size of the set.
"""

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver.records import Entry, Snapshot
from kip30.names import keys_in

_STEPS_KEPT = 1000
"""From this many changed keys on, a set is built from the state instead of from an earlier set."""


class _Step(NamedTuple):
    """Difference of a set of keys from an earlier one."""

    base: frozenset[str]
    added: frozenset[str]
    removed: frozenset[str]

    def end(self) -> frozenset[str]:
        kept = self.base - self.removed if self.removed else self.base
        return kept | self.added if self.added else kept

    def then(self, added: frozenset[str], removed: frozenset[str]) -> "_Step | None":
        together = _Step(self.base, (self.added - removed) | added, self.removed | removed)
        is_short = len(together.added) + len(together.removed) <= _STEPS_KEPT
        return together if is_short else None


class Keys:
    """The keys of one state. Thread-safe."""

    __slots__ = ("_made_of", "_namespace", "_whole")

    def __init__(self, namespace: str, names: Iterable[str], step: _Step | None = None) -> None:
        """Represent the keys that *names* have in *namespace*; *step* leads to them, if given."""
        self._namespace = namespace
        # Dropped when the set is built. One attribute, because two threads may make it at once.
        self._made_of: tuple[Iterable[str], _Step | None] = names, step
        self._whole: frozenset[str] | None = None

    def whole(self) -> frozenset[str]:
        """Return all of them."""
        names, step = self._made_of
        whole = self._whole
        if whole is None:
            whole = named(self._namespace, names) if step is None else step.end()
            self._whole = whole
            self._made_of = (), None
        return whole

    def after(self, names: Iterable[str], added: frozenset[str], removed: frozenset[str]) -> "Keys":
        """Return the keys of the next state, which has *names*."""
        step, whole = self._made_of[1], self._whole
        if whole is not None:
            step = _Step(whole, added, removed)
        elif step is not None:
            step = step.then(added, removed)
        return Keys(self._namespace, names, step)


class KeySetChange:
    """The keys of a namespace that were added and removed, and all that are there now.

    Immutable; equal to another one of the same namespace and keys.
    """

    __slots__ = ("_added", "_keys", "_namespace", "_removed")
    __match_args__ = ("namespace", "added", "removed", "keys")

    def __init__(
        self,
        namespace: str,
        added: frozenset[str],
        removed: frozenset[str],
        keys: frozenset[str] | Keys,
    ) -> None:
        """Hold the *added* and *removed* keys; all *keys* are built for callers that read them."""
        self._namespace = namespace
        self._added = added
        self._removed = removed
        self._keys = keys

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self._namespace

    @property
    def added(self) -> frozenset[str]:
        """The keys that were added."""
        return self._added

    @property
    def removed(self) -> frozenset[str]:
        """The keys that were removed."""
        return self._removed

    @property
    def keys(self) -> frozenset[str]:
        """All keys that are there now. The set is built when it is first read."""
        return self._keys.whole() if isinstance(self._keys, Keys) else self._keys

    @override
    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, KeySetChange) else False

    @override
    def __hash__(self) -> int:
        return hash((self._namespace, self._added, self._removed))

    @override
    def __repr__(self) -> str:
        parts = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"KeySetChange({', '.join(parts)})"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return KeySetChange, self._fields()

    def _fields(self) -> tuple[str, frozenset[str], frozenset[str], frozenset[str]]:
        return self._namespace, self._added, self._removed, self.keys


class KeySets:
    """The keys of one namespace, shared by all its listeners of one registry. Thread-safe.

    A thousand listeners of ten thousand keys must not keep ten million strings.
    """

    def __init__(self, namespace: str) -> None:
        """Start without a state."""
        self.namespace = namespace
        # The newest state that was compared, and its keys. Written under the lock.
        self._state: Snapshot | None = None
        self._keys = Keys(namespace, ())
        self._lock = threading.Lock()

    def change(
        self, old: Snapshot | None, new: Snapshot, names: frozenset[str] | None
    ) -> KeySetChange | None:
        """Return the event of the step from *old* to *new*; None if they have the same keys.

        *names* are those in which the two may differ; None if that is not known.
        """
        came, went = _came_and_went(old, new, names)
        if old is not None and not came and not went:
            self._move_on(old, new)
            return None
        added, removed = named(self.namespace, came), named(self.namespace, went)
        with self._lock:
            keys = self._keys_after(old, new, added, removed)
            # A listener that lags behind must not set the others back.
            if self._state is None or self._state.order <= new.order:
                self._state, self._keys = new, keys
        return KeySetChange(self.namespace, added, removed, keys)

    def _move_on(self, old: Snapshot, new: Snapshot) -> None:
        """Note that *new* has the same keys as *old*: only values were written."""
        with self._lock:
            if self._state is old:
                self._state = new

    def _keys_after(
        self, old: Snapshot | None, new: Snapshot, added: frozenset[str], removed: frozenset[str]
    ) -> Keys:
        if self._state is new:
            return self._keys
        if old is None or self._state is not old:
            return Keys(self.namespace, new.entries)
        return self._keys.after(new.entries, added, removed)


def named(namespace: str, names: Iterable[str]) -> frozenset[str]:
    """Return the keys that *names* have in *namespace*."""
    return frozenset(keys_in(namespace, names))


def _came_and_went(
    old: Snapshot | None, new: Snapshot, names: frozenset[str] | None
) -> tuple[Collection[str], Collection[str]]:
    """Return the names that only *new* has, and those that only *old* has."""
    before: Mapping[str, Entry] = old.entries if old else {}
    after = new.entries
    if after is before:  # a store that delivers whole sets delivered the same one again
        return (), ()
    if names is None:
        return after.keys() - before.keys(), before.keys() - after.keys()
    return (
        [name for name in names if name in after and name not in before],
        [name for name in names if name in before and name not in after],
    )
