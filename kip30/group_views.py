"""What a reader or a listener sees of a group: its decoded members, and what has changed."""

import logging
import threading
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from typing import Generic, TypeVar

from typing_extensions import override

from kip30.codecs import Codec
from kip30.records import Snapshot, Version

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
    """

    _data: Mapping[str, T]
    order: int
    undecodable: frozenset[str] = frozenset()

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
    ``members.undecodable`` has changed.
    """

    group: str
    joined: frozenset[str]
    left: frozenset[str]
    updated: frozenset[str]
    members: Members[T]


_Record = tuple[Version, str]


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

    def members(self, snapshot: Snapshot) -> Members[T]:
        """Return the members that can be decoded, and the ids of the others."""
        decode, entries = self._codec.decode, snapshot.entries
        try:
            return Members(
                {name: decode(entry.data) for name, entry in entries.items()}, snapshot.order
            )
        except Exception:  # noqa: BLE001  a user's codec may raise anything
            return self._without_undecodable(snapshot)

    def _without_undecodable(self, snapshot: Snapshot) -> Members[T]:
        decoded: dict[str, T] = {}
        failures: dict[str, Exception] = {}
        for name, entry in snapshot.entries.items():
            try:
                decoded[name] = self._codec.decode(entry.data)
            except Exception as error:  # noqa: BLE001  one record must not hide all others
                failures[name] = error
        self._warn(snapshot, failures)
        return Members(decoded, snapshot.order, frozenset(failures))

    def _warn(self, snapshot: Snapshot, failures: Mapping[str, Exception]) -> None:
        """Log each undecodable record once, however often it is read or delivered."""
        records = _records(snapshot)
        now = {name: records[name] for name in failures}
        with self._lock:
            if snapshot.order < self._order:
                return
            known, self._warned, self._order = self._warned, now, snapshot.order
        for name, record in now.items():
            if known.get(name) != record:
                log.warning(
                    "member %r of %r has data that codec %r cannot decode: %s",
                    *(name, self.group, self._codec.name, failures[name]),
                )


class Changes(Generic[T]):
    """Describes changes to one listener. Only one thread at a time may call."""

    def __init__(self, views: GroupViews[T]) -> None:
        """Have described nothing yet."""
        self._views = views
        # The state described last, and the ids in it that could not be decoded.
        self._last: Snapshot | None = None
        self._undecodable: frozenset[str] = frozenset()

    def __call__(self, old: Snapshot | None, new: Snapshot) -> MembershipChange[T] | None:
        """Return what *new* changes about *old*; None if it is nothing."""
        before: Mapping[str, _Record] = _records(old) if old else {}
        after = _records(new)
        if old is not None and before == after:
            self._last = new if old is self._last else self._last
            return None
        hidden = self._hidden(old)
        members = self._views.members(new)
        self._last, self._undecodable = new, members.undecodable
        change = self._change(
            _without(before, hidden), _without(after, members.undecodable), members
        )
        is_news = old is None or members.undecodable != hidden
        is_news = is_news or bool(change.joined or change.left or change.updated)
        return change if is_news else None

    def _hidden(self, old: Snapshot | None) -> frozenset[str]:
        """Return the ids in *old* that could not be decoded."""
        if old is None:
            return frozenset()
        return self._undecodable if old is self._last else self._views.members(old).undecodable

    def _change(
        self,
        before: Mapping[str, _Record],
        after: Mapping[str, _Record],
        members: Members[T],
    ) -> MembershipChange[T]:
        return MembershipChange(
            group=self._views.group,
            joined=frozenset(after.keys() - before.keys()),
            left=frozenset(before.keys() - after.keys()),
            updated=frozenset(
                name for name in after.keys() & before.keys() if after[name] != before[name]
            ),
            members=members,
        )


def _records(snapshot: Snapshot) -> Mapping[str, _Record]:
    """Return what tells one incarnation, and one record of it, from the next."""
    return {name: (entry.version, entry.nonce) for name, entry in snapshot.entries.items()}


def _without(records: Mapping[str, _Record], ids: frozenset[str]) -> Mapping[str, _Record]:
    if not ids:
        return records
    return {name: record for name, record in records.items() if name not in ids}
