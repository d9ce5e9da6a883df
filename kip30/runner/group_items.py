"""A group that divides a list of items, for a runner of items: each item is handed out alone."""

from collections.abc import Sequence
from heapq import heappop, heappush

from typing_extensions import override

from kip30.coordinator import Item
from kip30.coordinator.work_items import guard_text
from kip30.locator import PluginLocator
from kip30.runner.group_member import (
    Entered,
    GroupHandle,
    GroupShare,
    Handover,
    ListMember,
    WorkList,
)


class GroupItem(GroupShare):
    """One item of one member from the generation that gave it; a `kip30.runner.HeldItem`."""

    def __init__(self, member: ListMember, item: Item, generation: int) -> None:
        """Stay valid as long as the share of *member* is, until `lost` is set."""
        super().__init__(member, [member.work.items.text_of(item)], generation)
        self.item: Item = item
        self.guard_text: str = guard_text(item)


class _ItemHandover(Handover[GroupItem]):
    """Hands the items of a member out, the first in the list first; listens to their changes.

    An item that the runner has is not handed out again before the runner gave it up, even if the
    member has lost it and got it again meanwhile: the processes of its command may still run.
    """

    def __init__(self) -> None:
        """Start without items."""
        super().__init__()
        # The generation in which the member got each item that it has.
        self._assigned: dict[Item, int] = {}
        # The items that the runner has and has not given up.
        self._held: dict[Item, GroupItem] = {}
        # The items that are assigned and not held.
        self._free: set[Item] = set()
        # The same as a heap.
        self._order: list[Item] = []
        # The items that were revoked or lost, as long as this waits for the runner to give them up.
        self._awaited: set[Item] = set()
        # The member that calls; written once, before it is started.
        self.member: ListMember | None = None

    # -- the polling thread

    def on_assigned(self, items: Sequence[Item]) -> None:
        """Let the runner take *items*."""
        since = -1 if self.member is None else self.member.since
        with self._changed:
            for item in items:
                self._assigned[item] = since
            for item in set(items) - self._held.keys():
                self._set_free(item)
            self._changed.notify_all()

    def on_revoked(self, items: Sequence[Item]) -> None:
        """Return when no process works on any of *items*."""
        gone = set(items)
        with self._changed:
            self._withdraw(gone)
            self._awaited = self._held.keys() & gone
            for item in self._awaited:
                self._held[item].wanted_back.set()
                self._notify()
            while self._awaited and not self._is_closed:
                self._changed.wait()

    def on_lost(self, items: Sequence[Item]) -> None:
        """Return when no process works on *items*, which are lost, or at their deadline."""
        gone = set(items)
        with self._changed:
            self._withdraw(gone)
            lost = [self._held[item] for item in self._held.keys() & gone]
            self._awaited = {one.item for one in lost}
            for one in lost:
                one.lost.set()
                self._notify()
            until = max((one.known_deadline for one in lost), default=0.0)
            self._await_end(lambda: bool(self._awaited), until)
            self._awaited = set()

    # -- the runner's thread

    @override
    def ready(self) -> int:
        return len(self._free)

    @override
    def give_up(self, share: object) -> None:
        with self._changed:
            if isinstance(share, GroupItem) and self._held.get(share.item) is share:
                del self._held[share.item]
                self._awaited.discard(share.item)
                if share.item in self._assigned:
                    self._set_free(share.item)
            # Not for each of many that are awaited: the polling thread would wake for each.
            if not self._awaited or self._free:
                self._changed.notify_all()

    # -- with the lock

    @override
    def _hand_out(self, member: ListMember) -> GroupItem:
        item = heappop(self._order)
        self._free.remove(item)
        self._held[item] = GroupItem(member, item, self._assigned[item])
        return self._held[item]

    @override
    def _has_any(self) -> bool:
        return bool(self._held)

    def _set_free(self, item: Item) -> None:
        if item not in self._free:
            self._free.add(item)
            heappush(self._order, item)

    def _withdraw(self, items: set[Item]) -> None:
        for item in items:
            self._assigned.pop(item, None)
        if not items.isdisjoint(self._free):
            self._free -= items
            self._order = sorted(self._free)


class GroupItems(GroupHandle[GroupItem]):
    """One member of one group, and its items: a `kip30.runner.ItemWorkshare`."""

    def ready(self) -> int:
        """Return how many items `wait` would return at this moment, one after the other."""
        return 0 if self._entered is None else self._entered.handover.ready()

    @override
    def _new_member(self, locator: PluginLocator, work: WorkList) -> Entered[GroupItem]:
        handover = _ItemHandover()
        member = handover.member = ListMember(locator, work, handover)
        return Entered(member, handover)
