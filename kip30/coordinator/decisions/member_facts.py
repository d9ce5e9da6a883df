"""Facts known to a member, and their changes after each step.

`MemberFacts` are immutable: every method returns new ones. Only the polling thread may replace
them. A field holds the acknowledged value, unless it says otherwise.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from kip30.coordinator.decisions.validity import OwnGeneration, seen, share_deadline
from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.packing import part_of
from kip30.coordinator.records import (
    Assignment,
    MemberRecord,
    Part,
    PresentMember,
    StateRecord,
)
from kip30.driver.records import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProfile:
    """Properties of a member that do not change.

    Attributes:
        member_id: Made by the member, with a random part.
        instance: Its group instance id, or the member id of a dynamic member.
        protocol_type: Of its coordinator.
        rebalance_timeout_seconds: How long rounds wait for it.
        margin_seconds: That of its lease.
        cooperative: Whether it keeps its work while it joins.
        eligible: Whether it may lead.
        wait_for_predecessor: Whether it joins only when the former holder of its instance is gone.
    """

    member_id: str
    instance: str
    protocol_type: str
    rebalance_timeout_seconds: float
    margin_seconds: float
    cooperative: bool = False
    eligible: bool = True
    wait_for_predecessor: bool = False

    @property
    def is_static(self) -> bool:
        """True if the member has a group instance id."""
        return self.instance != self.member_id


class StateReading(NamedTuple):
    """The state of the group as one reading shows it.

    Attributes:
        record: None if there is none.
        version: Its version; None if there is none.
        sent_at: When the linearizable reading was sent; None for what a listener delivered.
        holder: The member that has the own instance, of a static member's linearizable reading;
            ``""`` if it was given up, None if the store has no key of it.
    """

    record: StateRecord | None
    version: Version | None
    sent_at: float | None = None
    holder: str | None = None


class Lookup(NamedTuple):
    """Result of a search for the own instance in one part of an assignment.

    Attributes:
        attempt: Of which publication.
        found: The assignment; the number of the part to read next; or None if there is none.
    """

    attempt: str
    found: Assignment | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """All that the next step of a member depends on.

    Attributes:
        now: The present, on the clock of the lease; `at` sets it.
        nonce: A random text that no record has yet; new for each call of `member_next`.
        profile: The properties of the member that do not change.
        reading: The newest state; None while it must be read.
        arrived_at: When it arrived.
        claim: The version at which this member wrote the key of its instance; None before.
        claimed_at: When that was acknowledged.
        record: The newest record that the group may show of this member; None if it has none.
        is_acknowledged: Whether the group shows it for certain.
        joined_at: When the present membership was acknowledged.
        lease_deadline: Until when the membership is valid: its lease, and the application's polls.
        protocols: What `metadata` returned since the last join that was acknowledged; None if it
            must be called.
        digest: That of the protocols, without what changes with every share.
        is_prepared: Whether ``on_join_prepare`` was called since the last share.
        own: The generation that was taken up, and not lost since.
        lookup: The content of the newest part that was read.
        group: All members, as a reading of this member shows them; None if it has none.
        unreadable: The ids of the records that this reading could not read.
        rejoin_wanted: Whether the application has asked for a round.
    """

    now: float
    nonce: str
    profile: MemberProfile
    reading: StateReading | None = None
    arrived_at: float = 0.0
    claim: Version | None = None
    claimed_at: float = 0.0
    record: MemberRecord | None = None
    is_acknowledged: bool = False
    joined_at: float = 0.0
    lease_deadline: float = 0.0
    protocols: tuple[JoinGroupMetadata, ...] | None = None
    digest: str = ""
    is_prepared: bool = False
    own: OwnGeneration | None = None
    lookup: Lookup | None = None
    group: tuple[PresentMember, ...] | None = None
    unreadable: frozenset[str] = frozenset()
    rejoin_wanted: bool = False

    @property
    def deadline(self) -> float:
        """Time until which the share is valid (`share_deadline`)."""
        return share_deadline(
            self.own,
            lease_deadline=self.lease_deadline,
            rebalance_timeout_seconds=self.profile.rebalance_timeout_seconds,
            margin_seconds=self.profile.margin_seconds,
        )

    @property
    def state(self) -> StateRecord | None:
        """The newest known state; None if there is none, or none was read."""
        return None if self.reading is None else self.reading.record

    # -- what came of a step

    def at(self, now: float, nonce: str = "") -> "MemberFacts":
        """Let time pass: before each call of `member_next`, and before an answer is noted.

        *nonce* is the next random text; without it the present one stays.
        """
        return replace(self, now=now, nonce=nonce or self.nonce)

    def read(self, reading: StateReading) -> "MemberFacts":
        """Note a reading of the state, by this member or its listener, unless it is outdated.

        Two readings may overtake each other. The one with the smaller version is the older one,
        unless it was sent after the other had arrived: then the store has lost its data.
        """
        if self.reading is not None and self._is_older(reading, self.reading):
            return self
        return replace(self, reading=reading, arrived_at=self.now, own=self._own_after(reading))

    def unread(self) -> "MemberFacts":
        """Note that the state must be read again."""
        return replace(self, reading=None)

    def read_group(
        self, members: tuple[PresentMember, ...] | None, *, unreadable: Collection[str] = ()
    ) -> "MemberFacts":
        """Note the members of the group; None if they may have changed."""
        return replace(self, group=members, unreadable=frozenset(unreadable))

    def claimed(self, version: Version) -> "MemberFacts":
        """Note that the key of the instance is this member's, at *version*."""
        return replace(self, claim=version, claimed_at=self.now, reading=None, group=None)

    def prepared(self) -> "MemberFacts":
        """Note that ``on_join_prepare`` was called; metadata must be collected after it."""
        own = self.own
        if own is not None and not self.profile.cooperative:
            own = replace(own, is_given_up=True)
        return replace(self, is_prepared=True, own=own, protocols=None)

    def collected(self, protocols: tuple[JoinGroupMetadata, ...], digest: str) -> "MemberFacts":
        """Note what ``metadata`` returned."""
        return replace(self, protocols=protocols, digest=digest)

    def joined(self, record: MemberRecord, *, lease_deadline: float) -> "MemberFacts":
        """Note that the group shows *record*, in a new incarnation.

        A static member reads the state again: the one it knows may be of a time when its instance
        was not in the group, and its share may have been given away since.
        """
        reading = None if self.profile.is_static else self.reading
        return replace(
            self.written(record),
            reading=reading,
            joined_at=self.now,
            lease_deadline=lease_deadline,
        )

    def written(self, record: MemberRecord, *, acknowledged: bool = True) -> "MemberFacts":
        """Note that the group shows *record*, or may show it if its answer was lost."""
        shows_newest = self.protocols is not None and record.protocols == self.protocols
        done = acknowledged and (record.rejoin >= 0 or shows_newest)
        return replace(
            self,
            record=record,
            is_acknowledged=acknowledged,
            # Kept for the answer, which decides whether the group shows the newest.
            protocols=None if acknowledged else self.protocols,
            rejoin_wanted=self.rejoin_wanted and not done,
        )

    def session_over(self) -> "MemberFacts":
        """Note that the membership has ended: the next one begins with a new record."""
        return replace(
            self,
            record=None,
            is_acknowledged=False,
            lease_deadline=0.0,
            protocols=None,
            group=None,
        )

    def wanting_rejoin(self) -> "MemberFacts":
        """Note that the application's metadata has changed, so that the next record shows it."""
        return replace(self, rejoin_wanted=True, protocols=None)

    def fetched(self, attempt: str, part: Part | None) -> "MemberFacts":
        """Note a part of *attempt*; None if it is gone or cannot be read."""
        found = None if part is None else part.get(self.profile.instance)
        return replace(self, lookup=Lookup(attempt, found))

    def taken_up(self, assignment: Assignment) -> "MemberFacts":
        """Note that ``on_join_complete`` has returned for the newest state that was read.

        That holds even if another state arrived meanwhile: the engine passes readings on only
        between two steps.
        """
        reading, state = self.reading, self.state
        if reading is None or state is None or reading.version is None:
            return self
        own = OwnGeneration(
            number=state.generation,
            attempt=state.attempt,
            protocol=state.protocol,
            assignment=assignment,
            state_version=reading.version,
            confirmed_at=self._confirmed_before(),
            history=state.history,
        )
        own = seen(own, state, reading.version, sent_at=self._confirming(reading))
        return replace(self, own=own, is_prepared=False, protocols=None)

    def lost(self) -> "MemberFacts":
        """Note that ``on_lost`` was called; what was known before is no longer trusted."""
        return replace(self, own=None, is_prepared=False, reading=None, protocols=None)

    # -- what the facts mean

    def found(self) -> Assignment | int | None:
        """Return the own assignment in the newest generation, or which part to read for it.

        None if there is no assignment for the own instance.
        """
        state = self.state
        if state is None:
            return None
        if not state.parts:
            return state.inline.get(self.profile.instance)
        if self.lookup is not None and self.lookup.attempt == state.attempt:
            return self.lookup.found
        return part_of(self.profile.instance, state.parts)

    def holds_instance(self, reading: StateReading) -> bool:
        """Return whether *reading* shows the own instance, if there is one, to be this member's."""
        return not self.profile.is_static or reading.holder == self.profile.member_id

    def is_fenced(self) -> bool:
        """Return whether a reading sent after the claim shows that the instance is another's."""
        reading = self._reading_after_claim()
        return reading is not None and reading.holder not in {None, self.profile.member_id}

    def has_lost_instance_key(self) -> bool:
        """Return whether a reading sent after the claim shows that the key of the instance is gone.

        The protocol never deletes it, so the store has lost it, and no other process has it.
        """
        reading = self._reading_after_claim()
        return reading is not None and reading.holder is None

    def _reading_after_claim(self) -> StateReading | None:
        """Return the newest reading of a static member if it was sent after its claim."""
        reading = self.reading
        if self.claim is None or reading is None or reading.sent_at is None:
            return None
        return reading if reading.sent_at >= self.claimed_at else None

    def _is_older(self, reading: StateReading, newest: StateReading) -> bool:
        if newest.version is None:
            return False
        if reading.version is not None and reading.version >= newest.version:
            return False
        return reading.sent_at is None or reading.sent_at < self.arrived_at

    def _own_after(self, reading: StateReading) -> OwnGeneration | None:
        if self.own is None or reading.record is None or reading.version is None:
            return self.own
        # A share whose deadline has passed has ended, and no later answer revives it: a caller that
        # asked in between has got the answer that it is not valid.
        is_late = -math.inf < self.deadline <= self.now
        sent_at = None if is_late else self._confirming(reading)
        return seen(self.own, reading.record, reading.version, sent_at=sent_at)

    def _confirmed_before(self) -> float | None:
        """Return when the present share was last confirmed, if the member has kept it until now.

        The same reading confirms the next share, because the round that gives that away begins
        later. So a member that keeps its work can stop in order what it must give up, even if the
        next round has begun before it takes this one up, as in each hand-over.
        """
        own = self.own
        return None if own is None or own.is_given_up else own.confirmed_at

    def _confirming(self, reading: StateReading) -> float | None:
        """Return when *reading* was sent if it can prove that no other member has the share.

        One that was sent before the present membership began cannot: while the member was not in
        the group, a round did not have to wait for it. Nor can one from before the claim.
        """
        if reading.sent_at is None or reading.sent_at < max(self.joined_at, self.claimed_at):
            return None
        return reading.sent_at if self.holds_instance(reading) else None
