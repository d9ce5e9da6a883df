"""The items that a listener of the application works on, and the member that calls it."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from typing_extensions import override

from kip30.coordinator.abstract_coordinator import AbstractCoordinator
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.item_texts import decode
from kip30.locator import PluginLocator

T = TypeVar("T", bound="tuple[object, ...] | str")

log: logging.Logger = logging.getLogger(__name__)

NO_GENERATION = -1


class HeldItems(Generic[T]):
    """The items that a listener has begun with. Used only on the polling thread.

    Attributes:
        items: The items it has begun with and was not asked to give up. Only this class writes it.
        generation: The one in which it got them; `NO_GENERATION` if it has lost them.
    """

    def __init__(
        self,
        begin: Callable[[Sequence[T]], object],
        give_up: Callable[[Sequence[T]], object],
        lose: Callable[[Sequence[T]], object],
    ) -> None:
        """Start without items; call these listener methods with sorted items, never with none."""
        self.items: frozenset[T] = frozenset()
        self.generation: int = NO_GENERATION
        self._begin = begin
        self._give_up = give_up
        self._lose = lose

    def take_up(self, share: frozenset[T], generation: int) -> None:
        """Give up items that are not in *share*, then begin with the new ones.

        If the listener raises at that, the new items are not held: it is asked to give them up, for
        it may have begun with some, and the next call offers them again.
        """
        self.give_up(self.items - share)
        new = sorted(share - self.items)
        if new:
            self._begin_or_give_up(new)
        self.items, self.generation = share, generation

    def _begin_or_give_up(self, new: Sequence[T]) -> None:
        try:
            self._begin(new)
        except BaseException:
            # Now: the group may give them to others before the next call, and then there is none.
            try:
                self._give_up(new)
            except Exception:  # the first error says more
                log.exception("a listener raised when it was to give up what it had not begun with")
            raise

    def give_up(self, items: Iterable[T]) -> None:
        """Let the listener give *items* up; they are given up even if it raises."""
        given_up = sorted(items)
        if not given_up:
            return
        try:
            self._give_up(given_up)
        finally:
            self.items -= frozenset(given_up)

    def lose(self) -> None:
        """Drop all items; the listener is notified too late to write."""
        lost, self.items, self.generation = sorted(self.items), frozenset(), NO_GENERATION
        if lost:
            self._lose(lost)


class HoldingCoordinator(AbstractCoordinator, Generic[T]):
    """A member whose share is items, which a listener begins with and gives up.

    Subclasses decode a share, and return whether what the leader divides has changed.
    """

    def __init__(
        self,
        locator: PluginLocator,
        group_id: str,
        *,
        held: HeldItems[T],
        refresh_seconds: float,
        config: GroupConfig,
    ) -> None:
        """Prepare a member that has *held*; *refresh_seconds* is for `refresh`."""
        super().__init__(locator, group_id, config=config)
        # Read and written only on the polling thread.
        self._held = held
        # When to check again what is divided; any thread may set it to 0, for the next poll.
        self._refresh_at = 0.0
        self._refresh_seconds = refresh_seconds

    @abstractmethod
    def _items_in(self, share: Mapping[str, Any]) -> Iterable[T]:
        """Return the items of a decoded share; an empty one is a share, too."""

    @abstractmethod
    def _has_changed(self) -> bool:
        """Return whether what is divided has changed since the last assignment of this member.

        A leader that has made no assignment yet does not know the input of the last one.
        """

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        """Give up items that are not in the share, then begin with the new ones."""
        share = frozenset(self._items_in(decode(member_assignment)))
        self._held.take_up(share, generation)

    @override
    def on_lost(self, generation: int, member_id: str) -> None:
        self._held.lose()

    @override
    def on_leave_prepare(self) -> None:
        """Give up all items."""
        if self.is_valid():
            self._held.give_up(self._held.items)
        else:
            self.on_lost(self._held.generation, self.member_id)

    @override
    def refresh(self) -> None:
        """On the leader, ask for a round if what is divided has changed."""
        if not self.is_leader or self._clock.now() < self._refresh_at:
            return
        self._refresh_later()
        if self._has_changed():
            self.request_rejoin("what is divided has changed")

    def _refresh_later(self) -> None:
        self._refresh_at = self._clock.now() + self._refresh_seconds
