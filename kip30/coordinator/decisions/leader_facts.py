"""Facts known to the leader of a group during one term, and their changes after each step.

`LeaderFacts` are immutable, and start from scratch with each term: a successor times the grace of
static members and the deadline of a round from when it took over, and reads the committed
assignment. Only the leader's task may replace them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions.forming import Formation, assignments
from kip30.coordinator.decisions.member_facts import StateReading
from kip30.coordinator.keys import attempt_name
from kip30.coordinator.packing import Packed, PackingLimits, pack
from kip30.coordinator.records import (
    Assignment,
    MemberRecord,
    Part,
    PresentMember,
    StateRecord,
    joined_member,
)
from kip30.coordinator.voting import Vote
from kip30.driver.records import Version
from kip30.errors import GroupError

_LIMITS = PackingLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRules:
    """Properties of a term that do not change.

    Attributes:
        member_id: The leader's own.
        epoch: That of its term.
        config: Its own settings, which hold for the group while it leads.
        session_timeout_seconds: The locator's.
        limits: The sizes up to which it packs assignments.
    """

    member_id: str
    epoch: int
    config: GroupConfig
    session_timeout_seconds: float
    limits: PackingLimits = _LIMITS

    @property
    def grace_seconds(self) -> float:
        """Seconds for which the share of an absent static member is kept."""
        grace = self.config.static_grace_seconds
        return self.session_timeout_seconds if grace is None else grace


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFacts:
    """All that the next step of the leader depends on.

    Attributes:
        now: The present, on any clock that never goes back; `at` sets it.
        nonce: A random text that no record has yet; new for each call of `leader_next`.
        rules: The properties of the term that do not change.
        reading: The newest state; None while it must be read.
        members: The members of the group, by the newest reading or notification; one of the last
            generation whose record can no longer be read, as it was.
        unreadable: The ids of the other members whose records cannot be read.
        is_group_read: Whether `members` is a linearizable reading that the leader asked for, and
            nothing has happened since.
        parts: The parts read of the committed assignment, by number; None for a part that is gone.
        roster: The assignments of the last generation; None while they must be read.
        roster_attempt: Of which publication they are.
        instances: The values of the keys of absent static instances when they were read.
        known: The newest record of each static instance that was in the last generation: as this
            leader has seen it, or else as the assignment has it.
        absent_since: When an instance of the roster was first found to be gone.
        noticed_at: When the cause of the next round was first seen; None while there is none.
        newcomer_at: When the newest newcomer was first seen.
        began_at: When the state was known to be PREPARING under this leader; None while it is not.
        committed_at: When this leader's last commit was acknowledged; None before.
        streak: How many rounds have followed each other within a session timeout.
        formation: The generation that is being formed; None before the vote.
        cleaned: For which generation outdated parts were deleted.
    """

    now: float
    nonce: str
    rules: LeaderRules
    reading: StateReading | None = None
    members: tuple[PresentMember, ...] = ()
    unreadable: frozenset[str] = frozenset()
    is_group_read: bool = False
    parts: Mapping[int, Part | None] = field(default_factory=dict[int, Part | None])
    roster: Mapping[str, Assignment] | None = None
    roster_attempt: str = ""
    instances: Mapping[str, str] = field(default_factory=dict[str, str])
    known: Mapping[str, PresentMember] = field(default_factory=dict[str, PresentMember])
    absent_since: Mapping[str, float] = field(default_factory=dict[str, float])
    noticed_at: float | None = None
    newcomer_at: float = 0.0
    began_at: float | None = None
    committed_at: float | None = None
    streak: int = 0
    formation: Formation | None = None
    cleaned: int = 0

    @property
    def state(self) -> StateRecord | None:
        """The newest known state; None if there is none, or none was read."""
        return None if self.reading is None else self.reading.record

    # -- outcomes of a step

    def at(self, now: float, nonce: str = "") -> "LeaderFacts":
        """Let time pass: before each call of `leader_next`, and before an answer is noted.

        *nonce* is the next random text; without it the present one stays.
        """
        return _noted(replace(self, now=now, nonce=nonce or self.nonce))

    def read(self, reading: StateReading) -> "LeaderFacts":
        """Note the state that a linearizable reading, or the answer to a write, shows.

        This settles a write whose answer was lost: the leader continues from the state it finds.
        """
        facts = replace(self, reading=reading, is_group_read=False)
        state = reading.record
        if state is None:
            new = replace(facts, roster={}, roster_attempt="", began_at=None, formation=None)
            return _noted(new)
        if facts.formation is not None and facts.formation.round != state.round:
            facts = replace(facts, began_at=None, formation=None)  # the store has lost its data
        if state.attempt != facts.roster_attempt or facts.roster is None:
            facts = _with_roster_of(facts, state)
        if state.is_preparing and state.epoch == self.rules.epoch:
            # Counted from the answer: from before the request, a reading that was sent in between
            # could still see the state STABLE, and its member would work beyond the deadline.
            began_at = self.now if facts.began_at is None else facts.began_at
            return _noted(replace(facts, began_at=began_at))
        return _noted(replace(facts, began_at=None, formation=None))

    def unread(self) -> "LeaderFacts":
        """Note that the state must be read again: a write conflicted, or its answer was lost."""
        return replace(self, reading=None)

    def written(self, record: StateRecord, version: Version) -> "LeaderFacts":
        """Note that the state was written."""
        is_begin = record.is_preparing and self.state is not None and not self.state.is_preparing
        facts = replace(self, streak=_next_streak(self)) if is_begin else self
        return facts.read(StateReading(record, version))

    def saw_group(
        self,
        members: Iterable[PresentMember],
        *,
        unreadable: Collection[str] = (),
        linearizable: bool = False,
    ) -> "LeaderFacts":
        """Note the members of the group: *linearizable* for the answer to `ReadGroup`."""
        accepted = self.accepted()
        kept = [
            one
            for one in self.members
            if one.member_id in unreadable and one.record.instance in accepted
        ]
        seen = (*members, *kept)
        before = {one.member_id for one in self.members}
        has_new = any(one.member_id not in before for one in seen)
        facts = replace(
            self,
            members=seen,
            unreadable=frozenset(unreadable).difference(one.member_id for one in kept),
            is_group_read=linearizable,
            newcomer_at=self.now if has_new else self.newcomer_at,
        )
        return _noted(facts)

    def read_parts(self, parts: Mapping[int, Part | None]) -> "LeaderFacts":
        """Note parts of the committed assignment."""
        facts = replace(self, parts={**self.parts, **parts})
        return facts if facts.missing_parts() else _noted(_with_all_parts(facts))

    def read_instances(self, instances: Mapping[str, str]) -> "LeaderFacts":
        """Note the values of the keys of static instances; ``""`` for an empty or missing one."""
        return _noted(replace(self, instances={**self.instances, **instances}))

    def assigning(self, vote: Vote) -> "LeaderFacts":
        """Note that ``perform_assignment`` was called for *vote*."""
        state = self.state
        if state is None:
            return self
        assign_by = self.now + max(one.record.rebalance_timeout_seconds for one in vote.accepted)
        return replace(self, formation=Formation(round=state.round, vote=vote, assign_by=assign_by))

    def assigned(self, shares: Mapping[str, bytes], *, follow_up: bool) -> "LeaderFacts":
        """Note what ``perform_assignment`` returned; ids that are not members are ignored.

        A share that is too large for the store is a failure, as `failed` notes it.
        """
        formation = self.formation
        if formation is None or formation.assignments is not None:
            return self  # it returned too late
        leader_id = self.rules.member_id
        all_given = self._leaving() | assignments(
            formation, shares, last=self.accepted(), leader_id=leader_id
        )
        try:
            given, packed = self._packed(all_given)
        except GroupError as error:
            return self.failed(str(error))
        new = replace(formation, assignments=given, packed=packed, follow_up=follow_up)
        return _named(replace(self, formation=new))

    def _packed(self, given: Mapping[str, Assignment]) -> tuple[Mapping[str, Assignment], Packed]:
        """Return *given* and its parts, without the records of members if shares need the room."""
        try:
            return given, pack(given, self.rules.limits)
        except GroupError:
            bare = {name: one._replace(record=b"") for name, one in given.items()}
            return bare, pack(bare, self.rules.limits)

    def failed(self, reason: str) -> "LeaderFacts":
        """Note that ``perform_assignment`` has raised, or returned what cannot be published."""
        if self.formation is None:
            return self
        return replace(self, formation=replace(self.formation, failure=reason))

    def abandoned(self) -> "LeaderFacts":
        """Abandon the attempt, because the answer to a part was lost: it may arrive at any time.

        The next one has another name. The state is read first, because another leader may have
        taken over while the store did not respond.
        """
        return replace(_named(self), reading=None)

    def stored(self) -> "LeaderFacts":
        """Note that the store has acknowledged every part."""
        if self.formation is None:
            return self
        return replace(self, formation=replace(self.formation, is_stored=True))

    def cleaned_up(self, generation: int) -> "LeaderFacts":
        """Note that parts outdated at *generation* were deleted, or will be with the next."""
        return replace(self, cleaned=generation)

    # -- what the facts mean

    def present(self) -> dict[str, PresentMember]:
        """Return the member of each instance: of two members the newer one counts."""
        found: dict[str, PresentMember] = {}
        for one in self.members:
            other = found.get(one.record.instance)
            if other is None or _order(one.record) > _order(other.record):
                found[one.record.instance] = one
        return found

    def _leaving(self) -> dict[str, Assignment]:
        """Return the refusals of members that are present and have not rejoined since."""
        refusals = {name: one for name, one in (self.roster or {}).items() if one.refusal}
        present = self.present()
        return {
            name: one
            for name, one in refusals.items()
            if name in present and self.is_refused(present[name])
        }

    def accepted(self) -> dict[str, Assignment]:
        """Return the assignments of the last generation's members."""
        return {name: one for name, one in (self.roster or {}).items() if not one.refusal}

    def is_refused(self, member: PresentMember) -> bool:
        """Return whether the last generation refused this join of *member*, which is to leave."""
        last = (self.roster or {}).get(member.record.instance)
        return last is not None and last.refusal != "" and last.nonce == member.record.nonce

    def has_unreadable_worker(self) -> bool:
        """Return whether a member of the last generation has a record that cannot be read.

        The share of a static one may be with another process by now: its instance names that.
        """
        return any(
            not self.unreadable.isdisjoint({one.member_id, self.instances.get(name)})
            for name, one in self.accepted().items()
        )

    def is_gone(self, instance: str) -> bool:
        """Return whether a member of the last generation, not present, is gone for good.

        A static one only when its grace has passed, or it has emptied the key of its instance.
        """
        last = (self.roster or {})[instance]
        if last.member_id == instance or self.instances.get(instance) == "":
            return True
        since = self.absent_since.get(instance, self.now)
        return self.now >= since + self.rules.grace_seconds

    def missing_parts(self) -> tuple[int, ...]:
        """Return the numbers of the parts that must be read before the roster is known."""
        state = self.state
        if state is None or self.roster is not None:
            return ()
        alone = {
            one
            for part in self.parts.values()
            for one in (part or {}).values()
            if isinstance(one, int)
        }
        return tuple(sorted((alone | {*range(state.parts)}) - {*self.parts}))

    def rejoining(self, state: StateRecord) -> bool:
        """Return whether a member asks for a round, or has joined the next one already."""
        return any(
            one.record.rejoin >= state.generation or one.record.round > state.generation
            for one in self.present().values()
        )

    def membership_changed(self) -> bool:
        """Return whether the instances that are present are not those of the last generation."""
        present, accepted = self.present(), self.accepted()
        new = any(
            name not in accepted and not self.is_refused(one) for name, one in present.items()
        )
        return new or any(self.is_gone(name) for name in accepted if name not in present)

    # -- notes

    def has_cause(self) -> bool:
        """Return whether a round has to begin: see `kip30.coordinator.decisions.leader`."""
        state = self.state
        if state is None:
            return bool(self.members)
        if state.is_preparing or self.roster is None:
            return False
        return state.follow_up or self.rejoining(state) or self.membership_changed()


def _noted(facts: LeaderFacts) -> LeaderFacts:
    """Note since when instances are absent, and since when a round has a cause."""
    if facts.reading is None:
        return facts  # no cause is known before the state was read
    present, accepted = facts.present(), facts.accepted()
    absent = {
        name: facts.absent_since.get(name, facts.now) for name in accepted if name not in present
    }
    static = {
        name: one
        for name, one in {**facts.known, **present}.items()
        if one.record.is_static and (name in accepted or name in present)
    }
    instances = {name: text for name, text in facts.instances.items() if name in absent}
    noted = replace(facts, absent_since=absent, known=static, instances=instances)
    noticed_at = facts.now if facts.noticed_at is None else facts.noticed_at
    return replace(noted, noticed_at=noticed_at if noted.has_cause() else None)


def _named(facts: LeaderFacts) -> LeaderFacts:
    """Name the publication of the generation that is being formed, as no other was named."""
    formation = facts.formation
    if formation is None:
        return facts
    name = attempt_name(formation.round, facts.rules.epoch, facts.nonce)
    return replace(facts, formation=replace(formation, attempt=name, is_stored=False))


def _next_streak(facts: LeaderFacts) -> int:
    if facts.committed_at is None or facts.noticed_at is None:
        return 0
    is_close = facts.noticed_at - facts.committed_at < facts.rules.session_timeout_seconds
    return facts.streak + 1 if is_close else 0


def _with_roster_of(facts: LeaderFacts, state: StateRecord) -> LeaderFacts:
    """Return *facts* with the assignments that *state* names, if they need not be read."""
    formation = facts.formation
    new = replace(facts, parts={}, roster=None, roster_attempt=state.attempt)
    if formation is not None and formation.attempt == state.attempt:
        return replace(new, roster=formation.assignments, committed_at=facts.now)
    return new if state.parts else _knowing(replace(new, roster=state.inline))


def _with_all_parts(facts: LeaderFacts) -> LeaderFacts:
    roster = {
        name: one
        for part in facts.parts.values()
        for name, one in (part or {}).items()
        if isinstance(one, Assignment)
    }
    return _knowing(replace(facts, roster=roster, parts={}))


def _knowing(facts: LeaderFacts) -> LeaderFacts:
    """Return *facts* with the static members of a roster that another leader has written."""
    found = {name: joined_member(name, one) for name, one in facts.accepted().items()}
    recorded = {name: one for name, one in found.items() if one is not None}
    return replace(facts, known={**recorded, **facts.known})


def _order(record: MemberRecord) -> tuple[Version, int]:
    return record.instance_version or Version(0), record.round
