"""The next step of a member.

Decided here:

* A dynamic newcomer joins the coming round at once. So joining costs it one write, and it cannot
  take the share of its former incarnation for its own: a generation is taken up only if it is not
  below the round that the member has joined.
* A static newcomer joins no round at first. It adopts the share of its instance if the group is
  STABLE and the metadata is what the share was given for; then it looks as if it had joined the
  round of that generation itself. Otherwise it asks for a round.
* A share that was lost because its deadline passed is taken up again if the state, read again, is
  still that of the same generation: no other member has had it, and a round would disturb all.
* A newcomer of another protocol type ends before it joins if a member of the type that the state
  names is present, so that the group is not disturbed (K10). The vote decides the rest: two
  newcomers of different types, and protocols.
* A static member whose key of the instance is gone has lost its share, and claims the instance
  again: the store came back empty, or the group was deleted. Only the id of another member in that
  key, or an empty one, ends it. Of two processes that both find the key gone, the one that claims
  last keeps the instance.
* A record that cannot be read may be of the predecessor for which a static member waits. So it
  waits for that, too, but no longer than for one rebalance timeout after its claim: by then the
  deadline of its predecessor has passed, because no reading that is sent after the claim confirms
  that share.
* ``on_join_prepare`` is called once between two shares, as Kafka does it, also if several rounds
  pass in which the member is left out.
"""

import math
from dataclasses import replace

from kip30.coordinator.decisions.member_facts import MemberFacts
from kip30.coordinator.decisions.steps import (
    ClaimInstance,
    CollectMetadata,
    EndMember,
    FetchPart,
    JoinGroup,
    MemberStep,
    PrepareJoin,
    ReadGroup,
    ReadState,
    ReportLoss,
    TakeUp,
    UpdateRecord,
    WaitForChange,
)
from kip30.coordinator.decisions.validity import OwnGeneration, is_newest
from kip30.coordinator.interface import MemberState
from kip30.coordinator.records import Assignment, MemberRecord, StateRecord
from kip30.errors import FencedInstanceError, GroupError

_NONE = -1


def member_next(facts: MemberFacts) -> MemberStep:
    """Return the next step of the member that knows *facts*."""
    if facts.reading is None:
        return ReadState()
    return _lose(facts) or _own_instance(facts) or _in_group(facts)


def _lose(facts: MemberFacts) -> MemberStep | None:
    reason = _loss(facts)
    return ReportLoss(_own_number(facts), reason) if reason else None


def _own_instance(facts: MemberFacts) -> MemberStep | None:
    if facts.profile.is_static and (facts.claim is None or facts.has_lost_instance_key()):
        return ClaimInstance()
    return EndMember(FencedInstanceError(_fenced(facts))) if facts.is_fenced() else None


def _fenced(facts: MemberFacts) -> str:
    return f"another process has the instance {facts.profile.instance!r}"


def _in_group(facts: MemberFacts) -> MemberStep:
    if facts.record is None:
        return _enter(facts)
    if not facts.is_acknowledged:
        return UpdateRecord(facts.record)
    if facts.record.instance_version != facts.claim:
        return UpdateRecord(replace(facts.record, instance_version=facts.claim))
    return (
        _take_up(facts, facts.record)
        or _join_round(facts, facts.record)
        or _ask(facts, facts.record)
        or _wait(facts)
    )


def member_state(facts: MemberFacts) -> MemberState:
    """Return where the member is. COMPLETING from its join until it has taken its share up."""
    state, record = facts.state, facts.record
    if record is None:
        return MemberState.UNJOINED
    if state is not None and _is_current(facts, state) and not state.is_preparing:
        return MemberState.STABLE
    has_joined = record.round > (state.generation if state is not None else 0)
    if has_joined and facts.is_acknowledged:
        return MemberState.COMPLETING_REBALANCE
    return MemberState.PREPARING_REBALANCE


def _loss(facts: MemberFacts) -> str:
    """Return why the share is lost, as far as the member itself knows; empty if it is not."""
    own, state = facts.own, facts.state
    if own is None:
        return ""
    if reason := _instance_loss(facts):
        return reason
    if facts.record is None:
        return "its membership has ended"
    if state is None or state.generation < own.number or _is_other_history(own, state):
        return "the store has lost the state of the group"
    if -math.inf < facts.deadline <= facts.now:
        return "the store has not confirmed it in time"
    return ""


def _instance_loss(facts: MemberFacts) -> str:
    if facts.is_fenced():
        return _fenced(facts)
    if facts.has_lost_instance_key():
        return f"the store has lost the key of the instance {facts.profile.instance!r}"
    return ""


def _is_other_history(own: OwnGeneration, state: StateRecord) -> bool:
    return state.generation == own.number and state.attempt != own.attempt


def _own_number(facts: MemberFacts) -> int:
    return _NONE if facts.own is None else facts.own.number


def _is_current(facts: MemberFacts, state: StateRecord) -> bool:
    return facts.own is not None and is_newest(facts.own, state)


# -- joining the group


def _enter(facts: MemberFacts) -> MemberStep:
    profile, state = facts.profile, facts.state
    generation = 0 if state is None else state.generation
    other_type = state is not None and state.protocol_type not in {"", profile.protocol_type}
    if facts.group is None and (other_type or profile.wait_for_predecessor):
        return ReadGroup()
    others = [one for one in facts.group or () if one.member_id != profile.member_id]
    if other_type and state is not None:
        kind = state.protocol_type
        if any(one.record.protocol_type == kind for one in others):
            mine = profile.protocol_type
            return EndMember(GroupError(f"the protocol type {mine!r} is not the group's, {kind!r}"))
    if profile.wait_for_predecessor:
        if any(one.record.instance == profile.instance for one in others):
            return WaitForChange()
        until = facts.claimed_at + profile.rebalance_timeout_seconds
        if facts.unreadable - {profile.member_id} and facts.now < until:
            return WaitForChange(until)
    if profile.is_static:
        return _collect(facts) or JoinGroup(_record(facts, joined=0))
    return _prepare(facts) or JoinGroup(_record(facts, joined=generation + 1))


def _prepare(facts: MemberFacts) -> MemberStep | None:
    """Return the calls of the application that come before a record can be made."""
    if not facts.is_prepared:
        member_id = "" if facts.own is None else facts.profile.member_id
        return PrepareJoin(_own_number(facts), member_id)
    return _collect(facts)


def _collect(facts: MemberFacts) -> MemberStep | None:
    return CollectMetadata() if facts.protocols is None else None


def _record(facts: MemberFacts, *, joined: int) -> MemberRecord:
    profile = facts.profile
    return MemberRecord(
        instance=profile.instance,
        instance_version=facts.claim,
        protocol_type=profile.protocol_type,
        rebalance_timeout_seconds=profile.rebalance_timeout_seconds,
        round=joined,
        nonce=facts.nonce,
        digest=facts.digest,
        generation=_own_number(facts),
        eligible=profile.eligible,
        cooperative=profile.cooperative,
        protocols=facts.protocols or (),
    )


# -- taking a generation up


def _take_up(facts: MemberFacts, record: MemberRecord) -> MemberStep | None:
    state = facts.state
    if state is None or not _may_take_up(facts, record, state):
        return None
    found = facts.found()
    if isinstance(found, int):
        return FetchPart(state.attempt, found)
    if found is None or not _answers(found, facts, record):
        return _left_out(facts, record, state)
    if not found.refusal:
        return TakeUp(state.generation, state.protocol, found)
    if found.nonce == record.nonce and facts.own is None:
        return EndMember(GroupError(f"the group refuses this member: {found.refusal}"))
    return _left_out(facts, record, state)


def _may_take_up(facts: MemberFacts, record: MemberRecord, state: StateRecord) -> bool:
    """Return whether this member must look itself up in the committed generation."""
    if state.generation == 0 or _is_current(facts, state):
        return False
    if record.round == 0:
        return not state.is_preparing  # the share of its instance is adopted only while STABLE
    return is_at_least_joined(record, state)


def is_at_least_joined(record: MemberRecord, state: StateRecord) -> bool:
    """Return whether the generation is not older than the round that the member has joined.

    By joining, the member has given up what it had; an older generation would give it back, and
    the leader may commit the next one at once.
    """
    return state.generation >= record.round


def _answers(found: Assignment, facts: MemberFacts, record: MemberRecord) -> bool:
    """Return whether an assignment to the own instance may be taken up by this member.

    An answer to a join of its predecessor may, if the predecessor offered the same; a static
    newcomer, which has joined no round, then adopts it.
    """
    is_own = record.round > 0 and found.member_id == facts.profile.member_id
    return is_own or found.digest == record.digest


def _left_out(facts: MemberFacts, record: MemberRecord, state: StateRecord) -> MemberStep | None:
    """Ask for a round, because the newest generation has no share for this member."""
    if facts.own is not None:
        reason = f"generation {state.generation} has no share for it"
        return ReportLoss(facts.own.number, reason)
    if state.is_preparing or record.rejoin >= state.generation:
        return None
    return UpdateRecord(replace(record, rejoin=state.generation))


# -- joining a round


def _join_round(facts: MemberFacts, record: MemberRecord) -> MemberStep | None:
    state = facts.state
    newest, is_preparing = (0, False) if state is None else (state.round, state.is_preparing)
    coming = newest if is_preparing else newest + 1
    has_to = record.round != coming if is_preparing else record.round > coming
    if not has_to:
        return None
    return _prepare(facts) or UpdateRecord(_record(facts, joined=coming))


def _ask(facts: MemberFacts, record: MemberRecord) -> MemberStep | None:
    """Return the next step of a member that has its share, in a stable state."""
    state, own = facts.state, facts.own
    if state is None or own is None or state.is_preparing or not _is_current(facts, state):
        return None
    if record.round == 0:
        adopted = replace(_record(facts, joined=own.number), nonce=own.assignment.nonce)
        return _collect(facts) or UpdateRecord(adopted)
    if record.rejoin >= own.number:
        return None
    if facts.rejoin_wanted or own.assignment.nonce != record.nonce:
        return UpdateRecord(replace(record, rejoin=own.number))
    return None


def _wait(facts: MemberFacts) -> WaitForChange:
    return WaitForChange(facts.deadline if facts.deadline > -math.inf else None)
