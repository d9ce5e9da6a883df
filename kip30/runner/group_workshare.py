"""A group that divides a list of items, for a runner of shares: all items of a member are one."""

from collections.abc import Sequence

from typing_extensions import override

from kip30.coordinator import Item
from kip30.locator import PluginLocator
from kip30.runner.group_member import (
    Entered,
    GroupHandle,
    GroupShare,
    Handover,
    ListMember,
    WorkList,
)

_NONE = -1


class _ShareHandover(Handover[GroupShare]):
    """Hands the whole share of a member out."""

    def __init__(self) -> None:
        """Start without a share."""
        super().__init__()
        # The member's share, which may be handed out.
        self._items: Sequence[str] = ()
        # The share that the runner has and has not given up.
        self._held: GroupShare | None = None
        # The generation of the member's share; -1 for none. Only the polling thread writes it.
        self.generation: int = _NONE

    def put(self, items: Sequence[str], generation: int) -> None:
        """Note the member's new share."""
        with self._changed:
            self._items, self.generation = items, generation
            self._changed.notify_all()

    def take_back(self) -> None:
        """Return when no process works on the share that the runner has."""
        self.put((), _NONE)
        with self._changed:
            if self._held is not None:
                self._held.wanted_back.set()
                self._notify()
            while self._held is not None and not self._is_closed:
                self._changed.wait()

    def lose(self) -> None:
        """Return when no process works on the share, which is lost, or at its deadline."""
        self.put((), _NONE)
        with self._changed:
            held = self._held
            if held is not None:
                held.lost.set()
                self._notify()
                self._await_end(lambda: self._held is held, held.known_deadline)

    @override
    def give_up(self, share: object) -> None:
        with self._changed:
            if self._held is share:
                self._held = None
            self._changed.notify_all()

    @override
    def ready(self) -> int:
        return 1 if self._items else 0

    @override
    def _hand_out(self, member: ListMember) -> GroupShare:
        self._held = GroupShare(member, self._items, self.generation)
        return self._held

    @override
    def _has_any(self) -> bool:
        return self._held is not None


class _NoListener:
    """Ignores changes of single items: this runner handles whole shares."""

    def on_assigned(self, items: Sequence[Item]) -> None:
        """Do nothing: `_Member.on_join_complete` hands the whole share on."""

    on_revoked = on_lost = on_assigned


class _Member(ListMember):
    """A member that takes its share back from the runner before it gives an item of it up."""

    def __init__(self, locator: PluginLocator, work: WorkList, handover: _ShareHandover) -> None:
        super().__init__(locator, work, _NoListener())
        self._handover = handover

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        """Take the share back unless it stays the same, and hand the new one out."""
        since = self.since
        if since == self._handover.generation:
            super().on_join_complete(generation, member_id, protocol, member_assignment)
            return
        self._handover.take_back()
        super().on_join_complete(generation, member_id, protocol, member_assignment)
        self._handover.put(list(map(self.work.items.text_of, sorted(self.owned))), since)

    @override
    def on_lost(self, generation: int, member_id: str) -> None:
        self._handover.lose()
        super().on_lost(generation, member_id)


class GroupWorkshare(GroupHandle[GroupShare]):
    """One member of one group, and its share: a `kip30.runner.Workshare`."""

    @override
    def _new_member(self, locator: PluginLocator, work: WorkList) -> Entered[GroupShare]:
        handover = _ShareHandover()
        return Entered(_Member(locator, work, handover), handover)
