"""Views of a group for readers and listeners: its decoded members, and their changes."""

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
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from typing_extensions import override

from kip30.codecs import Codec
from kip30.driver.records import Entry, Snapshot, Version

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)


class Incarnations(Mapping[str, Version]):
    """The incarnations of the members in *entries*.

    They are looked up when they are read, because most listeners of a large group never read them.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        """Read *entries*, which must not change."""
        self._entries = entries

    @override
    def __reduce__(self) -> tuple[type[dict[str, Version]], tuple[dict[str, Version]]]:
        """Pickle as a plain dict of incarnations, without the data of the members."""
        return dict, (self._all(),)

    @override
    def __getitem__(self, member_id: str) -> Version:
        return self._entries[member_id].version

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def __contains__(self, member_id: object) -> bool:
        return member_id in self._entries

    # From a dict that is built in one go: the views of `Mapping` look up each item separately.
    @override
    def values(self) -> ValuesView[Version]:
        return self._all().values()

    @override
    def items(self) -> ItemsView[str, Version]:
        return self._all().items()

    @override
    def __repr__(self) -> str:
        return f"Incarnations({self._all()!r})"

    def _all(self) -> dict[str, Version]:
        return {name: entry.version for name, entry in self._entries.items()}


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
        incarnations: The incarnation of each member by id, decodable or not: sorted by it, the
            members are in the order in which they joined.
    """

    _data: Mapping[str, T]
    order: int
    undecodable: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    incarnations: Mapping[str, Version] = field(default_factory=dict[str, Version])

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

    # The views of the dict itself: those of `Mapping` look up each item separately.
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
    """The changes in a group, and all of its members now.

    *updated* are members with new data or a new incarnation. All three sets name members whose
    data can be decoded: a member whose data can no longer be decoded counts as having left. They
    are all empty if only ``members.unreadable``, ``members.undecodable`` or the incarnation of such
    a member has changed.
    """

    group: str
    joined: frozenset[str]
    left: frozenset[str]
    updated: frozenset[str]
    members: Members[T]

    @property
    def incarnations(self) -> Mapping[str, Version]:
        """The incarnation of each member by id, decodable or not: those of `members`."""
        return self.members.incarnations


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
        """Pickle as a plain dict of the decoded data: codecs need not be picklable."""
        return dict, (dict(self),)

    @override
    def __getitem__(self, member_id: str) -> T:
        try:
            return self._data[member_id]
        except KeyError:
            if member_id in self.hidden:
                raise
            decoded = self.codec.decode(self.entries[member_id].data)
            # Two threads get the same object.
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
        # The newest state that was searched for failures, and its records that were logged. Both
        # are written under the lock.
        self._order = -1
        self._warned: dict[str, _Record] = {}
        # The last completely decoded state, and the ids that could not be decoded: a thousand
        # listeners begin with the same state. One attribute, so that the two always match.
        self._hidden: tuple[Mapping[str, Entry], frozenset[str]] = ({}, frozenset())

    def members(self, snapshot: Snapshot) -> Members[T]:
        """Return the members that can be decoded, and the ids of the others."""
        decode, entries = self._codec.decode, snapshot.entries
        try:
            decoded = {name: decode(entry.data) for name, entry in entries.items()}
        except Exception:  # noqa: BLE001  a user's codec may raise anything
            return self._without_undecodable(snapshot)
        return _members(snapshot, decoded, frozenset())

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
        """Return what `members` does, when only *changed* may differ from an earlier state.

        *undecodable* are the ids that could not be decoded in that state.
        """
        entries = snapshot.entries
        present = {name: entries[name] for name in changed if name in entries}
        decoded, failures = self._decoded(present)
        hidden = frozenset(failures) | undecodable.difference(changed)
        if hidden:
            self._warn(snapshot, failures, hidden)
        return _members(snapshot, _Decoded(entries, hidden, self._codec, decoded), hidden)

    def _without_undecodable(self, snapshot: Snapshot) -> Members[T]:
        decoded, failures = self._decoded(snapshot.entries)
        hidden = frozenset(failures)
        self._warn(snapshot, failures, hidden)
        return _members(snapshot, decoded, hidden)

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
        """Log each of *failures* once, however often the record is read or delivered.

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
    """Computes the events of one listener. Only one thread at a time may call."""

    def __init__(self, views: GroupViews[T]) -> None:
        """Start without a state."""
        self._views = views
        # The last state passed in, and the ids in it that could not be decoded.
        self._last: Snapshot | None = None
        self._undecodable: frozenset[str] = frozenset()

    def __call__(
        self, old: Snapshot | None, new: Snapshot, names: frozenset[str] | None
    ) -> MembershipChange[T] | None:
        """Return the event of the step from *old* to *new*; None if nothing has changed.

        *names* are those in which the two may differ; None if that is not known.
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
        were_there: Mapping[str, Entry] = old.entries if old else {}
        before = {name for name in changed if name in were_there and name not in hidden}
        after = {name for name in changed if name in members}
        is_news = old is None or before or after or members.undecodable != hidden
        if (
            not is_news
            and (old is not None and old.unreadable.keys() == new.unreadable.keys())
            and not _has_new_incarnation(changed, were_there, new.entries)
        ):
            return None
        return MembershipChange(
            group=self._views.group,
            joined=frozenset(after - before),
            left=frozenset(before - after),
            updated=frozenset(before & after),
            members=members,
        )


def _members(snapshot: Snapshot, data: Mapping[str, T], hidden: frozenset[str]) -> Members[T]:
    """Return the view of *snapshot* with *data*, which lacks that of *hidden*."""
    unreadable, incarnations = frozenset(snapshot.unreadable), Incarnations(snapshot.entries)
    return Members(data, snapshot.order, hidden, unreadable, incarnations)


def _has_new_incarnation(
    names: Iterable[str], before: Mapping[str, Entry], after: Mapping[str, Entry]
) -> bool:
    """Return whether a member of both states, among *names*, has a new incarnation."""
    return any(
        before[name].version != after[name].version
        for name in names
        if name in before and name in after
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
    """Return what distinguishes incarnations, and successive records of one."""
    return entry.version, entry.nonce
