"""The position of a member in a line: the members that joined its group before it.

The versions of members grow in the order in which they join, on every store. So no later member
comes before one that is in the group. A member reads the group once. After that it watches only
those members before it that must leave before anything changes, mostly one: when one of them has
left, the next read shows how far the line has moved. A member that leaves wakes few others, however
long the line is.

A record that cannot be read is no evidence that its member has left. A member that was before this
one stays there as it was last read. Of a record that the first read could not read nothing is
known, so the user of the position decides what it means (`LinePosition.unreadable`). One that
appears later is of a member that joined later.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kip30.driver.records import Claim, Kind, Snapshot, Target, Version
from kip30.errors import NotMemberError
from kip30.runtime.dispatcher import Task
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Feed


class InLine(NamedTuple):
    """A member of a line, ordered by when it joined. The version identifies the incarnation."""

    version: Version
    id: str
    data: bytes


Select = Callable[[Sequence[InLine]], Sequence[InLine]]
"""Chooses which members before one to watch: it is not admitted until one of them has left."""


def one_at(distance: int) -> Select:
    """Select the member *distance* places before, or the one right before if the line is shorter.

    So a rank of *distance* or more is counted again when it may have become less than that.
    """

    def select(before: Sequence[InLine]) -> Sequence[InLine]:
        return before[-distance:][:1] if len(before) >= distance else before[-1:]

    return select


class LinePosition:
    """The position of one member in the line of its group. Used by one task alone.

    Attributes:
        rank: How many members were before it at the last count; None before the first.
        awaited: Those of them that are watched since the last count.
        unreadable: The records that the first count could not read, with the reasons: each may be
            of a member before it, which is not among those counted.
    """

    def __init__(
        self, store: OpenStore, group: str, claim: Claim, task: Task, select: Select
    ) -> None:
        """Count nothing yet; wake *task* when a member chosen by *select* has left."""
        self.rank: int | None = None
        self.awaited: Sequence[InLine] = ()
        self.unreadable: Mapping[str, str] = {}
        self._store = store
        self._group = group
        self._claim = claim
        self._task = task
        self._select = select
        # The watched target, and its feed.
        self._target: Target | None = None
        self._feed: Feed | None = None
        # The order of the last read. A watch of the group that others began may lag behind it.
        self._order = -1
        # The members before it at the last read; None before the first.
        self._found: Sequence[InLine] | None = None

    def count(self) -> int:
        """Return the rank, from the last read if that is still valid; see `look`."""
        return self.look() if self.rank is None or self.has_moved() else self.rank

    def look(self) -> int:
        """Read the group, and return the rank.

        Raises:
            NotMemberError: The member itself is no longer there.
            UnavailableError: The store did not answer. The next call reads again.
        """
        self.rank = None
        before = self._before()
        self.awaited = self._select(before)
        self._watch()
        self.rank = len(before)
        return self.rank

    def has_moved(self) -> bool:
        """Return whether an awaited member is known to have left."""
        latest = self._feed.latest if self._feed is not None else None
        if latest is None or self._is_behind(latest):
            return False
        return not all(_shows(latest, one) for one in self.awaited)

    def _is_behind(self, latest: Snapshot) -> bool:
        is_group = self._target is not None and self._target.kind is Kind.GROUP
        return is_group and latest.order < self._order

    def close(self) -> None:
        """Stop watching."""
        if self._target is not None:
            self._store.subscriptions.detach(self._target, self._task)
            self._target = self._feed = None

    def _before(self) -> Sequence[InLine]:
        """Return the members before this one, in their order."""
        group = Target(Kind.GROUP, self._group)
        snapshot = self._store.wait(self._store.drivers.observe.snapshot(group))
        self._store.unreadable.note(group, snapshot.unreadable)
        self._order, entries = snapshot.order, snapshot.entries
        own = self._claim.entry.version
        mine = entries.get(self._claim.name)
        if mine is None or mine.version != own:
            raise NotMemberError(f"{self._claim.name!r} is no longer a member of {self._group!r}")
        found = [
            InLine(one.version, name, one.data)
            for name, one in entries.items()
            if one.version < own
        ]
        if self._found is None:
            self.unreadable = snapshot.unreadable
        found += [one for one in self._found or () if one.id in snapshot.unreadable]
        self._found = sorted(found)
        return self._found

    def _watch(self) -> None:
        """Watch the awaited members: one member alone, or the group if there are several."""
        wanted: Target | None = None
        if self.awaited:
            is_one = len(self.awaited) == 1
            name = self.awaited[0].id if is_one else ""
            wanted = Target(Kind.MEMBER if is_one else Kind.GROUP, self._group, name)
        # The current watch may already know that its member has left: then a new watch reads it
        # again.
        if wanted == self._target and not self.has_moved():
            return
        self.close()
        if wanted is not None:
            self._feed = self._store.subscriptions.attach(wanted, self._task)
            self._target = wanted


def _shows(latest: Snapshot, one: InLine) -> bool:
    """Return whether *one* may be in the line by *latest*."""
    entry = latest.entries.get(one.id)
    return one.id in latest.unreadable if entry is None else entry.version == one.version
