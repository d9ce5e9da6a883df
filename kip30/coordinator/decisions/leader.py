"""The next step of the leader of a group.

A round has a cause if work was withheld in the last one, a member asks for it or has joined it
already, an instance is present that is not in the last generation, or one of that generation is
gone. It begins after a pause, so that many causes cost one round, and the members join it. It ends
when all have, or when the greatest rebalance timeout has passed.

Decided here:

* ``round`` is no field of the state: it is the generation plus one while the state is PREPARING.
* Two members of one instance: the one that has taken it later counts. The round waits for the other
  as for a member that has not joined, because its process may still be working; it leaves when it
  reads the key of its instance, or its session ends.
* A static member that is gone, or has not joined by the deadline, takes part with what it joined
  with last. A new leader has that from the assignment. It leaves the member out if it is not there:
  an older kip30 leaves no such record, and neither does a large share or a large record. Giving the
  member to the assignor without metadata would give its work to others in its place.
* A member that is gone works on nothing: its record goes only when its lease has ended, and the
  group is read after the round has begun. So what a round takes from it goes to others at once.
* A member of the last generation whose record cannot be read may be working all the same: a round
  waits for it as for one that has not joined, so that its work goes to others only after its own
  deadline. It joins a round with a new record, which heals a damaged one.
* A round neither waits for a refused member nor counts its leaving as a loss. Its refusal is
  published with each generation until it does.
* A cooperative member of the last generation that is refused may work until its own deadline, so
  the round that refuses it is committed only then.
* A leader that has not joined by the deadline itself, or is refused, resigns: it cannot assign.
* Outdated parts are deleted while nothing else is due, so this delays no round.
* `follow_up` is a flag, not the number of what was withheld: only the application could count it.
"""

import math

from kip30.coordinator.decisions.forming import Formation
from kip30.coordinator.decisions.leader_facts import LeaderFacts
from kip30.coordinator.decisions.steps import (
    Assign,
    CleanParts,
    LeaderStep,
    PutParts,
    ReadGroup,
    ReadInstances,
    ReadParts,
    ReadState,
    Resign,
    WaitForChange,
    WriteState,
)
from kip30.coordinator.records import PresentMember, StateRecord
from kip30.coordinator.state_transitions import begun, first, taken_over
from kip30.coordinator.voting import Vote, vote
from kip30.driver.records import Condition, Version

_AT_ONCE = 4
"""Number of rounds in a row before a follow-up has to wait: a hand-over takes two."""

_MOST_DOUBLINGS = 5
"""A restart of one process after the other makes one round after the other: none may wait long."""


def leader_next(facts: LeaderFacts) -> LeaderStep:
    """Return the next step of the leader that knows *facts*."""
    if facts.reading is None:
        return ReadState()
    state, version = facts.reading.record, facts.reading.version
    if state is None or version is None:
        return _first_round(facts)
    if (state.epoch, state.leader) != (facts.rules.epoch, facts.rules.member_id):
        return _take_over(facts, state, version)
    missing = facts.missing_parts()
    if missing:
        return ReadParts(state.attempt, missing)
    if state.is_preparing:
        return _in_round(facts, state, version)
    return _between_rounds(facts, state, version)


def _write(record: StateRecord, expected: Version | Condition) -> WriteState:
    return WriteState(record, expected)


def _take_over(facts: LeaderFacts, state: StateRecord, version: Version) -> LeaderStep:
    """Write the own epoch before anything else: it makes the predecessor's writes conflict."""
    rules = facts.rules
    if state.epoch >= rules.epoch:
        return Resign(f"{state.leader!r} leads the group with epoch {state.epoch}")
    new = taken_over(state, epoch=rules.epoch, leader=rules.member_id)
    return _write(new, version)


# -- before a round


def _first_round(facts: LeaderFacts) -> LeaderStep:
    due = begin_at(facts)
    if due is None or facts.now < due:
        return WaitForChange(due)
    rules = facts.rules
    new = first(epoch=rules.epoch, leader=rules.member_id, history=facts.nonce)
    return _write(new, Condition.ABSENT)


def _between_rounds(facts: LeaderFacts, state: StateRecord, version: Version) -> LeaderStep:
    unread = tuple(
        name
        for name in facts.absent_since
        if name not in facts.instances and not facts.is_gone(name)
    )
    if unread:
        return ReadInstances(unread)
    due = begin_at(facts)
    if due is not None and facts.now >= due:
        return _write(begun(state), version)
    if facts.cleaned < state.generation:
        return CleanParts(state.generation)
    return WaitForChange(_earliest(due, *_ends_of_grace(facts)))


def begin_at(facts: LeaderFacts) -> float | None:
    """Return when the next round begins if nothing changes; None if it has no cause.

    An empty group waits for the initial delay from each newcomer on, but for no longer than a
    rebalance timeout (K27 to K29). Another group waits for ``coalesce_seconds``, doubled with each
    round that followed the one before within a session timeout, five times at most. A follow-up
    does not wait, unless several rounds have followed each other: an application may ask for
    rounds without limit.
    """
    if not facts.has_cause():
        return None
    noticed_at = facts.now if facts.noticed_at is None else facts.noticed_at
    state, config = facts.state, facts.rules.config
    if state is not None and state.follow_up and facts.streak < _AT_ONCE:
        return noticed_at
    if not facts.accepted().keys() & facts.present().keys():
        latest = noticed_at + greatest_timeout(facts)
        return min(max(noticed_at, facts.newcomer_at) + config.initial_delay_seconds, latest)
    pause = config.coalesce_seconds * 2.0 ** min(facts.streak, _MOST_DOUBLINGS)
    return noticed_at + min(pause, facts.rules.session_timeout_seconds)


def greatest_timeout(facts: LeaderFacts) -> float:
    """Return the greatest rebalance timeout of all records, including those that do not count."""
    timeouts = [one.record.rebalance_timeout_seconds for one in facts.members]
    return max(timeouts, default=facts.rules.config.rebalance_timeout_seconds)


def _ends_of_grace(facts: LeaderFacts) -> list[float]:
    grace = facts.rules.grace_seconds
    ends = (since + grace for since in facts.absent_since.values())
    return [end for end in ends if end > facts.now]


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


# -- in a round


def _in_round(facts: LeaderFacts, state: StateRecord, version: Version) -> LeaderStep:
    formation = facts.formation
    if formation is None:
        return _gather(facts, state)
    if formation.failure:
        return _bar(facts, formation.failure)
    if formation.assignments is None:
        if facts.now >= formation.assign_by:
            return _bar(facts, "the assignment was not performed in time")
        return WaitForChange(formation.assign_by)
    works_until = _refused_work_until(facts, formation)
    if facts.now < works_until:
        return WaitForChange(works_until)
    return _publish(facts, state, version)


def _refused_work_until(facts: LeaderFacts, formation: Formation) -> float:
    """Return until when a refused member may work on what this round gives to others.

    A cooperative one has joined with its items, and works on until it reads that it is refused, or
    its deadline passes: as long as a member that has not joined at all.
    """
    accepted = facts.accepted()
    works = any(
        one.record.cooperative and one.record.instance in accepted
        for one, _ in formation.vote.refused
    )
    began_at = facts.now if facts.began_at is None else facts.began_at
    return began_at + greatest_timeout(facts) if works else -math.inf


def _publish(facts: LeaderFacts, state: StateRecord, version: Version) -> LeaderStep:
    """Store all parts, then name them in the state: the commit is the only publication."""
    formation = facts.formation
    if formation is None:
        return ReadState()
    if formation.packed.parts and not formation.is_stored:
        return PutParts(formation.attempt, formation.packed.parts)
    return _write(formation.committed(state), version)


def _gather(facts: LeaderFacts, state: StateRecord) -> LeaderStep:
    """Wait until all have joined; decide by a reading of the group, not by what was delivered."""
    began_at = facts.now if facts.began_at is None else facts.began_at
    deadline = began_at + greatest_timeout(facts)
    is_late = facts.now >= deadline
    joined = [one for one in facts.present().values() if _has_joined(one, state)]
    if not (_all_joined(facts, state) or is_late) or not joined:
        if facts.cleaned < state.generation:
            return CleanParts(state.generation)
        return WaitForChange(None if is_late else deadline)
    if not facts.is_group_read:
        return ReadGroup()
    result = _vote(facts, state)
    own = facts.rules.member_id
    if own not in {one.member_id for one in joined}:
        return _bar(facts, "the leader has not joined the round")
    if own not in {one.member_id for one in result.accepted}:
        return _bar(facts, "the group refuses the leader")
    return Assign(result)


def _bar(facts: LeaderFacts, reason: str) -> Resign:
    return Resign(reason, facts.rules.config.rebalance_timeout_seconds)


def _has_joined(member: PresentMember, state: StateRecord) -> bool:
    return member.record.round == state.round


def _all_joined(facts: LeaderFacts, state: StateRecord) -> bool:
    counting = {one.member_id for one in facts.present().values()}
    return not facts.has_unreadable_worker() and all(
        one.member_id in counting and _has_joined(one, state)
        for one in facts.members
        if not facts.is_refused(one)
    )


def _vote(facts: LeaderFacts, state: StateRecord) -> Vote:
    present, accepted = facts.present(), facts.accepted()
    members = [
        one
        for one in present.values()
        if _has_joined(one, state) or (one.record.is_static and one.record.instance in accepted)
    ]
    absent = [
        facts.known[name]
        for name in accepted
        if name not in present and name in facts.known and not facts.is_gone(name)
    ]
    return vote(
        members,
        absent=absent,
        last=frozenset(accepted),
        leader_id=facts.rules.member_id,
        max_size=facts.rules.config.max_size,
    )
