"""The work of a process in a group that divides items: it owns items, and writes them."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kip30 import Kip30Error, PluginLocator, Version
from kip30.coordinator import GroupConfig, Item, PartitionCoordinator
from kip30_conformance.simulation.present import simulation

GROUP_OF_ITEMS = "items"
ITEMS = tuple(Item("work", number) for number in range(4))

SECONDS_ABOVE_SESSION = 1.5
"""The rebalance timeout, without the session timeout. Clocks may differ by a margin over it, so it
is short: see `plan.expand`."""
_HEARTBEAT_SECONDS = 2.0
_SECONDS_BETWEEN_WRITES = 4.0
_SECONDS_BETWEEN_READINGS = 0.5
_SECONDS_BETWEEN_DELAYS = 60.0
_DELAY_SECONDS = 8.0
"""Mean time for which its work keeps a member from polling: others may get its items meanwhile."""


class OwnedUntil(NamedTuple):
    """A member's view of itself: its items, and until when they are valid by its own clock.

    Attributes:
        session: The session on which that depends; None before there was one.
    """

    items: frozenset[Item]
    deadline: float
    session: int | None


NOTHING_OWNED = OwnedUntil(frozenset(), 0.0, None)


class GuardedWrite(NamedTuple):
    """A write of an item that the store has accepted, and the share that it was made for."""

    item: Item
    version: Version
    since: int


class ItemProgram:
    """A member of the group, which polls for ever.

    Attributes:
        reading: Its latest view of itself; items that it gives up are taken out at once.
        is_stable: Whether it has a share of the newest generation.
        is_silent: Whether it does not poll, until *is_calm*.
        failure: Why the group has ended it, which must not happen; None if it has not.
    """

    def __init__(
        self,
        name: str,
        locator: PluginLocator,
        *,
        session: Callable[[], int | None],
        assigned: Callable[[tuple[Item, ...]], object],
        written: Callable[[GuardedWrite], object],
    ) -> None:
        """Call *assigned* when items come, and *written* after each write; *name* is unique."""
        self.reading = NOTHING_OWNED
        self.is_stable = False
        self.is_silent = False
        self.failure: Kip30Error | None = None
        self._session = session
        self._assigned = assigned
        self._written = written
        self._chance = random.Random(f"items {name}")  # noqa: S311  it repeats itself
        session_seconds = locator.context.session_timeout_seconds
        self._member = PartitionCoordinator(
            locator,
            GROUP_OF_ITEMS,
            subscription=[ITEMS[0].topic],
            topics=lambda: {ITEMS[0].topic: len(ITEMS)},
            listener=self,
            config=GroupConfig(
                rebalance_timeout_seconds=session_seconds + SECONDS_ABOVE_SESSION,
                heartbeat_seconds=_HEARTBEAT_SECONDS,
            ),
        )

    def work(self, is_calm: Callable[[], bool]) -> None:
        """Take part in the group, write its items now and then, and poll late until *is_calm*."""
        chance = self._chance
        while self.failure is None:
            try:
                self.is_stable = self._member.poll(1.0)
                self._read()
                while self.is_silent and not is_calm():
                    self.is_stable = False
                    simulation().park(_SECONDS_BETWEEN_READINGS)
                if chance.random() < 1 / _SECONDS_BETWEEN_DELAYS and not is_calm():
                    self.is_stable = False  # a long delay may last beyond the faults
                    simulation().park(chance.expovariate(1 / _DELAY_SECONDS))
                if chance.random() < 1 / _SECONDS_BETWEEN_WRITES:
                    self._write()
            except Kip30Error:
                self.is_stable, self.failure = False, self._member.failure
                simulation().park(0.5)

    def on_assigned(self, items: Sequence[Item]) -> None:
        """Own *items*, too."""
        self._read(frozenset(items))
        self._assigned(tuple(items))

    def on_revoked(self, items: Sequence[Item]) -> None:
        """Own *items* no more."""
        self.reading = self.reading._replace(items=self.reading.items.difference(items))

    on_lost = on_revoked

    def watch(self) -> None:
        """Read until when the items are valid, as a thread does that works on them."""
        while self.failure is None:
            simulation().park(_SECONDS_BETWEEN_READINGS)
            self._read()

    def _read(self, more: frozenset[Item] = frozenset()) -> None:
        session = self._session()  # first: it must not be a later one than that of the deadline
        deadline = self._member.deadline  # before the items: it must not be that of a later share
        self.reading = OwnedUntil(self._member.owned | more, deadline, session)

    def _write(self) -> None:
        """Write an item; its share is unknown if that has changed meanwhile."""
        if not self.reading.items:
            return
        item, since = self._chance.choice(sorted(self.reading.items)), self._member.since
        version = self._member.storage().set(str(item.partition), str(since))
        if self._member.since == since:
            self._written(GuardedWrite(item, version, since))
