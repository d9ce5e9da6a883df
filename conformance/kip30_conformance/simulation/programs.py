"""The program of a process: election, group, listeners, storage, a lock, and items."""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from kip30 import (
    GroupMembership,
    Kip30Error,
    LeaderChange,
    LeaderElection,
    Leadership,
    Member,
    MembershipChange,
    PluginLocator,
)
from kip30.coordinator import Item
from kip30.driver.lease import Lease
from kip30.recipes import FencedGrip
from kip30.runtime.campaign import Campaign
from kip30.runtime.resolution import Configuration
from kip30_conformance.simulation.item_program import NOTHING_OWNED, ItemProgram, OwnedUntil
from kip30_conformance.simulation.lock_program import LockProgram
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.scheduler import Simulation
from kip30_conformance.simulation.simulated_backend import SimulatedBackend
from kip30_conformance.simulation.storage_program import CallHistory, StorageProgram

T = TypeVar("T")

ROOT = "simulated"
SERVICE = "service"
GROUP = "group"

_RETRY_SECONDS = 0.5
_TERMS_WITH_PRIORITIES = 8


class Event(NamedTuple):
    """A callback that a process has received: its kind, and the object that it was called with."""

    what: str
    subject: Leadership | Member | FencedGrip | tuple[Item, ...]


class ClientProgram:
    """One process: a candidate, a member, two listeners and a user of storage.

    Attributes:
        process: Where it runs.
        number: The same for all processes that take each other's place.
        candidate: Its id in the election.
        priority: That of the candidate.
        member_id: Its id in the group.
        confirmed: The number that its last confirmed update has written.
        is_evicted: Whether another client has taken the id.
        has_led: Whether it was elected after the faults, as often as it has to be.
        locks: The users of the lock; none in plans without one.
        items: The member of the group that divides items; None in plans without one.
        leader: What its listener was last notified of: a candidate and an epoch, or None; before
            that ``...``.
        members: The same for the group: the data by id.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        number: int,
        properties: Configuration,
        heard: Callable[["ClientProgram", Event], object],
        history: CallHistory,
    ) -> None:
        """Do nothing before `start`; call *heard* at each callback, and record in *history*."""
        self.process = process
        self.number = number
        self.candidate = f"c{number}"
        self.priority = 0
        self.member_id = f"m{number}"
        self.confirmed = 0
        self.is_evicted = False
        self.has_led = False
        self.locks: list[LockProgram] = []
        self.items: ItemProgram | None = None
        self.leader: object = ...
        self.members: object = ...
        self._properties = properties
        self._heard = heard
        self._history = history
        self._has_locks = False
        self._has_items = False
        self._has_operators = False
        self._chance = random.Random(process.name)  # noqa: S311  it repeats itself
        self._is_calm = False
        # The number of terms that it has to lead once it is calm.
        self._terms_left = 1
        self._locator = PluginLocator()
        self._backend: SimulatedBackend | None = None
        self._election: LeaderElection[str] | None = None
        self._values: StorageProgram | None = None
        self._group: GroupMembership[str] | None = None

    def start(self, within: Simulation) -> None:
        """Start its threads."""
        within.spawn(self.process, "main", self._main)

    def share_lock(self) -> None:
        """Use the lock too, from two threads, one of them in its fair line; before `start`."""
        self._has_locks = True

    def share_items(self) -> None:
        """Take part in a group that divides items, too; before `start`."""
        self._has_items = True

    def take_time_to_step_down(self) -> None:
        """Ask for time after an operator has ended a term, now and then; before `start`."""
        self._has_operators = True

    def stand_with(self, priority: int) -> None:
        """Stand for election with *priority*, and more often once it is calm; before `start`."""
        self.priority, self._terms_left = priority, _TERMS_WITH_PRIORITIES

    def be_calm(self) -> None:
        """From now on lead once, and hold the lock once, and then no more.

        After `stand_with`, it leads several times.
        """
        self._is_calm = True

    @property
    def is_done(self) -> bool:
        """Return whether it led, held the lock and has a share after the faults."""
        has_share = self.items is None or self.items.is_stable
        return self.has_led and has_share and all(lock.has_held for lock in self.locks)

    def backend(self) -> SimulatedBackend | None:
        """Return its client, once that was opened."""
        return self._backend

    def lease(self) -> tuple[int, Lease] | None:
        """Return the number of its session in the store, and the lease; for events."""
        return None if self._backend is None else self._backend.session()

    def term(self) -> Leadership | None:
        """Return the term that it believes in at this moment, by its own clock; for events."""
        if self._election is None or self.process.is_dead:
            return None
        # The public ways to it acquire locks, which an event cannot wait for.
        campaign: Campaign = vars(self._election)["_campaign"]
        candidacy = campaign.find(self.candidate)
        term = candidacy.leadership if candidacy is not None else None
        return term if term is not None and self._has_term(term) else None

    def lock_terms(self) -> list[Leadership]:
        """Return the terms of the grips that it believes in at this moment; for events."""
        if self.process.is_dead:
            return []
        grips = (lock.grip for lock in self.locks)
        terms = (grip.held for grip in grips if grip is not None)
        return [term for term in terms if isinstance(term, Leadership) and self._has_term(term)]

    def owned(self) -> OwnedUntil:
        """Return the items that it believes to own at this moment; for events."""
        if self.items is None or self.process.is_dead:
            return NOTHING_OWNED
        reading = self.items.reading
        return reading if self.process.now() < reading.deadline else NOTHING_OWNED

    def _session(self) -> int | None:
        known = self.lease()
        return None if known is None else known[0]

    def _has_term(self, term: Leadership) -> bool:
        return vars(term)["_reason"] is None and self.believes_in(term.lease)

    def believes_in(self, lease: Lease) -> bool:
        """Return whether *lease* is valid at this moment, by the clock of the process."""
        return lease.end_reason is None and self.process.now() < lease.deadline

    def close(self) -> None:
        """Close the locator."""
        self._locator.close()

    def vanish(self) -> None:
        """Leave nothing to a finalizer, as a process that is killed does.

        The finalizer of the locator refers to the callbacks, and so to the whole run, for ever.
        """
        finalizer = vars(self._locator)["_drop"]
        if finalizer is not None:
            finalizer.detach()

    def _main(self) -> None:
        backend = self._insist(lambda: self._locator.startup(self._properties)).backend
        assert isinstance(backend, SimulatedBackend)
        self._backend = backend
        self._group = self._locator.group_membership(GROUP)
        self._election = self._locator.leader_election(SERVICE)
        values = StorageProgram(self.process.name, self._locator.storage(), self._history)
        self._values = values
        spawn = simulation().spawn
        spawn(self.process, "candidate", self._lead)
        spawn(self.process, "member", self._belong)
        spawn(self.process, "listener", self._listen)
        spawn(self.process, "storage", lambda: values.work(lambda: self._is_calm))
        if self._has_locks:
            self._use_lock()
        if self._has_items:
            self._own_items()

    def _use_lock(self) -> None:
        for fair in (False, True):
            name = "fair lock" if fair else "lock"
            lock = LockProgram(
                f"{self.process.name} {name}", self._locator, fair=fair, acquired=self._on_acquired
            )
            self.locks.append(lock)
            work = partial(lock.work, lambda: self._is_calm)
            simulation().spawn(self.process, name, work)

    def _own_items(self) -> None:
        items = self.items = ItemProgram(
            self.process.name,
            self._locator,
            session=self._session,
            assigned=lambda items: self._heard(self, Event("assigned", items)),
            written=self._history.guarded_writes.append,
        )
        simulation().spawn(self.process, "items", partial(items.work, lambda: self._is_calm))
        simulation().spawn(self.process, "deadline", items.watch)

    def _listen(self) -> None:
        assert self._election is not None
        assert self._group is not None
        election, group = self._election, self._group
        self._insist(lambda: election.add_listener(self._on_leader, initial=True))
        self._insist(lambda: group.add_listener(self._on_members, initial=True))

    def _on_leader(self, change: LeaderChange[str]) -> None:
        self.leader = None if change.leader is None else (change.leader.id, change.leader.epoch)

    def _on_members(self, change: MembershipChange[str]) -> None:
        self.members = dict(change.members)

    def _lead(self) -> None:
        assert self._election is not None
        assert self._values is not None
        election, values, chance = self._election, self._values, self._chance
        while not self.has_led:
            # Nominated again after an error, it must have the same callbacks.
            seconds = chance.choice((0.0, 3.0)) if self._has_operators else 0.0
            nominate = partial(
                election.nominate,
                self.candidate,
                "",
                step_down_seconds=seconds,
                priority=self.priority,
            )
            self._insist(
                lambda: nominate(on_elected=self._on_elected, on_lost=self._on_lost)  # noqa: B023
            )
            term = election.wait_elected(self.candidate, chance.choice((None, 5.0, 30.0)))
            if term is not None:
                self._terms_left -= self._is_calm
                self.has_led = not self._terms_left
                values.write_under(term, 0.2 if self._is_calm else chance.expovariate(1 / 5))
            with suppress(Kip30Error):  # not nominated any longer, or released later
                election.resign(self.candidate)
            if term is not None:
                values.write_late(term)
            _wait(chance.expovariate(1 / 2))

    def _belong(self) -> None:
        assert self._group is not None
        group, sent = self._group, 0
        self._insist(
            lambda: group.join(
                self.member_id,
                "0",
                on_lost=self._on_lost,
                on_rejoined=self._on_rejoined,
                on_evicted=self._on_evicted,
            )
        )
        while not self._is_calm and not self.is_evicted:
            _wait(self._chance.expovariate(1 / 3))
            sent += 1
            try:
                group.update(self.member_id, str(sent))
            except Kip30Error:
                continue
            self.confirmed = sent

    def _on_elected(self, term: Leadership) -> None:
        self._heard(self, Event("elected", term))

    def _on_lost(self, lost: Leadership | Member) -> None:
        self._heard(self, Event("lost", lost))

    def _on_rejoined(self, member: Member) -> None:
        self._heard(self, Event("rejoined", member))

    def _on_acquired(self, grip: FencedGrip) -> None:
        self._heard(self, Event("acquired", grip))

    def _on_evicted(self, _: Member) -> None:
        self.is_evicted = True

    def _insist(self, call: Callable[[], T]) -> T:
        """Return the result of *call*, repeated until it raises no error of kip30."""
        while True:
            try:
                return call()
            except Kip30Error:
                _wait(_RETRY_SECONDS)


def _wait(seconds: float) -> None:
    simulation().park(seconds)
