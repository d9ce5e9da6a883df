"""What a reader or a listener sees of a group: its decoded members, and what has changed."""

import logging
import threading
from collections.abc import (
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from dataclasses import dataclass
from typing import Generic, TypeVar

from typing_extensions import override

from kip30.codecs import Codec
from kip30.driver.records import Entry, Snapshot, Version

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Members(Mapping[str, T]):
    """The data of each member by id, at one moment. Immutable; equal to a dict of the same items.

    Attributes:
        order: The place of this state among all states of the group that its locator has seen,
            read or received: of two different states, the later one has the greater order.
        undecodable: The ids of members whose data the codec in use cannot decode. They are
            members, but not in this mapping.
        unreadable: The names of records in the group that this kip30 cannot read: another
            program's, a newer kip30's, or damaged ones. They are not in this mapping either.
    """

    _data: Mapping[str, T]
    order: int
    undecodable: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()

    @override
    def __getitem__(self, member_id: str) -> T:
        return self._data[member_id]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    @override
    def __len__(self) -> int:
        return len(self._data)

    @override
    def __contains__(self, member_id: object) -> bool:
        return member_id in self._data

    # The views of the dict itself: those of `Mapping` look each item up on its own.
    @override
    def keys(self) -> KeysView[str]:
        return self._data.keys()

    @override
    def values(self) -> ValuesView[T]:
        return self._data.values()

    @override
    def items(self) -> ItemsView[str, T]:
        return self._data.items()

    @override
    def __repr__(self) -> str:
        hidden = f", undecodable={set(self.undecodable)!r}" if self.undecodable else ""
        return f"Members({dict(self._data)!r}, order={self.order}{hidden})"


@dataclass(frozen=True, slots=True)
class MembershipChange(Generic[T]):
    """What changed in a group, and all of its members now.

    *updated* are members with new data or a new incarnation. All three sets name members whose
    data can be decoded: one whose data no longer can be has left. They are all empty if only
    ``members.undecodable`` or ``members.unreadable`` has changed.
    """

    group: str
    joined: frozenset[str]
    left: frozenset[str]
    updated: frozenset[str]
    members: Members[T]


_Record = tuple[Version, str]


@dataclass(frozen=True, slots=True)
class _Decoded(Mapping[str, T]):
    """The data of *entries* without those *hidden*, each decoded when it is first read.

    Listeners of a large group mostly read the members that have changed.
    """

    entries: Mapping[str, Entry]
    hidden: frozenset[str]
    codec: Codec[T]
    _data: dict[str, T]

    @override
    def __reduce__(self) -> tuple[type[dict[str, T]], tuple[dict[str, T]]]:
        """Go to other processes as what it stands for: codecs do not travel."""
        return dict, (dict(self),)

    @override
    def __getitem__(self, member_id: str) -> T:
        try:
            return self._data[member_id]
        except KeyError:
            if member_id in self.hidden:
                raise
            decoded = self.codec.decode(self.entries[member_id].data)
            # Of two threads, both get the same object.
            return self._data.setdefault(member_id, decoded)

    @override
    def __iter__(self) -> Iterator[str]:
        if not self.hidden:
            return iter(self.entries)
        return (name for name in self.entries if name not in self.hidden)

    @override
    def __len__(self) -> int:
        return len(self.entries) - len(self.hidden)

    @override
    def __contains__(self, member_id: object) -> bool:
        return member_id in self.entries and member_id not in self.hidden


class GroupViews(Generic[T]):
    """Decodes the states of one group for one handle. Thread-safe."""

    def __init__(self, group: str, codec: Codec[T]) -> None:
        """Decode with *codec*."""
        self.group = group
        self._codec = codec
        self._lock = threading.Lock()
        # The newest state with which warnings were compared, and the records warned of that are
        # in it. Both are written under the lock.
        self._order = -1
        self._warned: dict[str, _Record] = {}
        # The entries decoded last as a whole, and the ids that could not be: a thousand listeners
        # begin with the same state. One attribute, so that the two belong together.
        self._hidden: tuple[Mapping[str, Entry], frozenset[str]] = ({}, frozenset())

    def members(self, snapshot: Snapshot) -> Members[T]:
        """Return the members that can be decoded, and the ids of the others."""
        decode, entries = self._codec.decode, snapshot.entries
        unreadable = frozenset(snapshot.unreadable)
        try:
            decoded = {name: decode(entry.data) for name, entry in entries.items()}
        except Exception:  # noqa: BLE001  a user's codec may raise anything
            return self._without_undecodable(snapshot)
        return Members(decoded, snapshot.order, unreadable=unreadable)

    def undecodable(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the ids in *snapshot* whose data cannot be decoded."""
        entries, hidden = self._hidden
        if entries is not snapshot.entries:
            hidden = self.members(snapshot).undecodable
            self._hidden = snapshot.entries, hidden
        return hidden

    def members_after(
        self, snapshot: Snapshot, changed: Iterable[str], undecodable: frozenset[str]
    ) -> Members[T]:
        """Return what `members` does, knowing that only *changed* may differ from a former state.

        *undecodable* are the ids that could not be decoded in that one.
        """
        entries = snapshot.entries
        present = {name: entries[name] for name in changed if name in entries}
        decoded, failures = self._decoded(present)
        hidden = frozenset(failures) | undecodable.difference(changed)
        if hidden:
            self._warn(snapshot, failures, hidden)
        return Members(
            _Decoded(entries, hidden, self._codec, decoded),
            *(snapshot.order, hidden, frozenset(snapshot.unreadable)),
        )

    def _without_undecodable(self, snapshot: Snapshot) -> Members[T]:
        decoded, failures = self._decoded(snapshot.entries)
        hidden = frozenset(failures)
        self._warn(snapshot, failures, hidden)
        return Members(decoded, snapshot.order, hidden, frozenset(snapshot.unreadable))

    def _decoded(self, entries: Mapping[str, Entry]) -> tuple[dict[str, T], dict[str, Exception]]:
        decoded: dict[str, T] = {}
        failures: dict[str, Exception] = {}
        for name, entry in entries.items():
            try:
                decoded[name] = self._codec.decode(entry.data)
            except Exception as error:  # noqa: BLE001  one record must not hide all others
                failures[name] = error
        return decoded, failures

    def _warn(
        self, snapshot: Snapshot, failures: Mapping[str, Exception], hidden: frozenset[str]
    ) -> None:
        """Log each of *failures* once, however often it is read or delivered.

        *hidden* are all ids of the state that cannot be decoded.
        """
        now = {name: _record(snapshot.entries[name]) for name in hidden}
        with self._lock:
            if snapshot.order < self._order:
                return
            known, self._warned, self._order = self._warned, now, snapshot.order
        for name, error in failures.items():
            if known.get(name) != now[name]:
                log.warning(
                    "member %r of %r has data that codec %r cannot decode: %s",
                    *(name, self.group, self._codec.name, error),
                )


class Changes(Generic[T]):
    """Describes changes to one listener. Only one thread at a time may call."""

    def __init__(self, views: GroupViews[T]) -> None:
        """Have described nothing yet."""
        self._views = views
        # The state described last, and the ids in it that could not be decoded.
        self._last: Snapshot | None = None
        self._undecodable: frozenset[str] = frozenset()

    def __call__(
        self, old: Snapshot | None, new: Snapshot, names: frozenset[str] | None
    ) -> MembershipChange[T] | None:
        """Return what *new* changes about *old*; None if it is nothing.

        *names* are where the two may differ; None if that is not known.
        """
        hidden = self._hidden(old)
        changed = _changed(old, new, names)
        if old is not None and not changed and old.unreadable.keys() == new.unreadable.keys():
            self._last, self._undecodable = new, hidden
            return None
        members = (
            self._views.members(new)
            if old is None
            else self._views.members_after(new, changed, hidden)
        )
        self._last, self._undecodable = new, members.undecodable
        return self._change(old, new, changed, hidden, members)

    def _hidden(self, old: Snapshot | None) -> frozenset[str]:
        """Return the ids in *old* that could not be decoded."""
        if old is None:
            return frozenset()
        return self._undecodable if old is self._last else self._views.undecodable(old)

    def _change(
        self,
        old: Snapshot | None,
        new: Snapshot,
        changed: Iterable[str],
        hidden: frozenset[str],
        members: Members[T],
    ) -> MembershipChange[T] | None:
        were_there: Collection[str] = old.entries if old else ()
        before = {name for name in changed if name in were_there and name not in hidden}
        after = {name for name in changed if name in members}
        is_news = old is None or before or after or members.undecodable != hidden
        if not is_news and old is not None and old.unreadable.keys() == new.unreadable.keys():
            return None
        return MembershipChange(
            group=self._views.group,
            joined=frozenset(after - before),
            left=frozenset(before - after),
            updated=frozenset(before & after),
            members=members,
        )


def _changed(old: Snapshot | None, new: Snapshot, names: frozenset[str] | None) -> Collection[str]:
    """Return the ids whose records differ, among *names* or, if that is None, among all."""
    before: Mapping[str, Entry] = old.entries if old else {}
    after = new.entries
    if names is None:
        names = frozenset(before) | frozenset(after)
    return [name for name in names if _differ(before.get(name), after.get(name))]


def _differ(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is not other
    return _record(one) != _record(other)


def _record(entry: Entry) -> _Record:
    """Return what tells one incarnation, and one record of it, from the next."""
    return entry.version, entry.nonce
