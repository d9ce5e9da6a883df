"""The generation that a leader forms: from the vote, over the shares, to the state to commit."""

from collections.abc import Mapping
from dataclasses import dataclass

from kip30.coordinator.decisions.candidacy import standbys
from kip30.coordinator.packing import Packed
from kip30.coordinator.records import (
    MEMBER,
    Assignment,
    GroupPhase,
    MemberRecord,
    PresentMember,
    StateRecord,
)
from kip30.coordinator.state_transitions import committed
from kip30.coordinator.voting import Vote

_INLINE = Packed(0, {})
_RECORD_BYTES = 16 * 1024
"""The largest record of a static member that goes with its share; a greater one is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """The generation that the leader forms, from the vote to the commit.

    Attributes:
        round: Its number.
        vote: Its members.
        assign_by: By when `perform_assignment` must have returned.
        assignments: By instance; None until it has.
        follow_up: Whether another round must follow at once.
        attempt: Names the publication.
        packed: The assignments as they are published.
        is_stored: Whether all parts are acknowledged.
        failure: Why there are no assignments and will be none; empty while there may be.
    """

    round: int
    vote: Vote
    assign_by: float
    assignments: Mapping[str, Assignment] | None = None
    follow_up: bool = False
    attempt: str = ""
    packed: Packed = _INLINE
    is_stored: bool = False
    failure: str = ""

    def committed(self, state: StateRecord) -> StateRecord:
        """Return the state that publishes this."""
        is_inline = self.packed.divided_by == 0
        new = StateRecord(
            phase=GroupPhase.STABLE,
            generation=self.round,
            epoch=state.epoch,
            leader=state.leader,
            attempt=self.attempt,
            parts=self.packed.divided_by,
            inline=(self.assignments or {}) if is_inline else {},
            protocol_type=self.vote.protocol_type,
            protocol=self.vote.protocol,
            follow_up=self.follow_up,
            history=state.history,
        )
        return committed(state, new)


def assignments(
    formation: Formation,
    shares: Mapping[str, bytes],
    *,
    last: Mapping[str, Assignment],
    leader_id: str,
) -> dict[str, Assignment]:
    """Return the assignment of each instance that the vote has accepted or refused.

    A member without a share gets ``b""``, and a share of another id is dropped.

    Args:
        formation: The generation to form.
        shares: The shares by member id.
        last: The assignments of the last generation's members.
        leader_id: The leader's own member id.
    """
    number = formation.round
    standing = standbys(formation.vote.accepted, leader_id)
    result = {
        member.record.instance: _refusal(member, number, why)
        for member, why in formation.vote.refused
    }
    for member in formation.vote.accepted:
        share = bytes(shares.get(member.member_id, b""))
        record = member.record
        result[record.instance] = Assignment(
            member_id=member.member_id,
            nonce=record.nonce,
            digest=record.digest,
            since=_since(member, share, last.get(record.instance), number),
            is_standby=member.member_id in standing,
            share=share,
            record=_kept_record(record),
        )
    return result


def _kept_record(record: MemberRecord) -> bytes:
    """Return what a later leader must know of a member while it is away."""
    encoded = MEMBER.encode(record) if record.is_static else b""
    return encoded if len(encoded) <= _RECORD_BYTES else b""


def _since(member: PresentMember, share: bytes, last: Assignment | None, number: int) -> int:
    """Return from which generation on *member* has had these bytes without a break.

    A member that is not cooperative has given its work up in between, so its writes of the last
    generation must not pass in this one.
    """
    stays = member.record.cooperative and last is not None and last.share == share
    return last.since if stays and last is not None else number


def _refusal(member: PresentMember, number: int, why: str) -> Assignment:
    record = member.record
    return Assignment(member.member_id, record.nonce, record.digest, number, refusal=why)
