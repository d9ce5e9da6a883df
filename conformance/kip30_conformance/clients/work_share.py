"""A member that does its share of the work for as long as it is a member; see docs/semantics.md."""

import threading
from collections.abc import Sequence

from kip30 import GroupMembership, Member, Members
from kip30_conformance.clients.callback_recorder import Recorder


class Share:
    """The parts that fall to one member of a group.

    Attributes:
        rejoined: The incarnations that began after a lost session.
    """

    def __init__(self, group: GroupMembership[str], me: str, parts: Sequence[int]) -> None:
        """Join *group* as *me*, to share *parts*."""
        self.rejoined = Recorder[Member](self._rejoined)
        self._group = group
        self._me = me
        self._parts = parts
        self._lock = threading.Lock()
        self._newest: Members[str] | None = None
        group.join(me, "", on_rejoined=self.rejoined)
        group.add_listener(lambda change: self._take(change.members))

    def mine(self) -> list[int]:
        """Return the parts to work on now: none unless this is a member by its own clock."""
        member = self._group.member(self._me)
        if member is None:
            return []
        ids = sorted(self._view_since(member))
        if self._me not in ids:  # the session has ended in the store already
            return []
        return [part for part in self._parts if ids[part % len(ids)] == self._me]

    def _view_since(self, member: Member) -> Members[str]:
        """Return a view with *member*, or a later one."""
        view = self._newest
        if view is not None and view.order >= member.order:
            return view
        return self._take(self._group.membership())

    def _rejoined(self, member: Member) -> None:
        self._view_since(member)

    def _take(self, view: Members[str]) -> Members[str]:
        """Keep *view* unless a newer one is known; return the newest one."""
        with self._lock:
            if self._newest is None or view.order > self._newest.order:
                self._newest = view
            return self._newest
