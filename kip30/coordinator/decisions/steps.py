"""The steps that members and leaders take: one request, one call of the application, or a wait.

They are not tuples, because a step without a field would then be false.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kip30.coordinator.records import Assignment, MemberRecord, StateRecord
from kip30.coordinator.voting import Vote
from kip30.driver.records import Condition, Version
from kip30.errors import Kip30Error


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state, and then, for a static member, the key of its instance."""


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Read all members of the group, linearizably."""


@dataclass(frozen=True, slots=True)
class WaitForChange:
    """Nothing is to be done before the facts change, or ``now`` reaches *until* (None: never)."""

    until: float | None = None


# -- steps of a member


@dataclass(frozen=True, slots=True)
class ClaimInstance:
    """Take the key of the own instance: read it, and compare-and-set it to the own member id.

    If the answer is lost, or the key has the own id already, the version that is read next is the
    claim's: no other process writes this id.
    """


@dataclass(frozen=True, slots=True)
class PrepareJoin:
    """Call ``on_join_prepare``. It counts as called even if it raises."""

    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class CollectMetadata:
    """Call ``metadata``, and check it with `kip30.coordinator.voting.check_offer`."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Join the group with *record*."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """Replace the own record in the group. After a lost answer the same record is sent again."""

    record: MemberRecord


@dataclass(frozen=True, slots=True)
class FetchPart:
    """Read a part of the assignment that *attempt* names, for the own entry in it."""

    attempt: str
    number: int


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Call ``on_join_complete``. If it raises, the member has not taken the generation up."""

    generation: int
    protocol: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """Call ``on_lost``: it is too late to write what belongs to the share."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndMember:
    """Leave the group for good, and raise *error* to the application."""

    error: Kip30Error


MemberStep: TypeAlias = (
    ReadState
    | ReadGroup
    | ClaimInstance
    | PrepareJoin
    | CollectMetadata
    | JoinGroup
    | UpdateRecord
    | FetchPart
    | TakeUp
    | ReportLoss
    | EndMember
    | WaitForChange
)


# -- steps of a leader


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write the state if *expected* holds. After a conflict, or a lost answer, it is read again."""

    record: StateRecord
    expected: Version | Condition


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Read parts of the committed assignment, for a leader that did not publish it."""

    attempt: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadInstances:
    """Read the keys of static instances that are gone: an empty one was left for good."""

    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Call ``perform_assignment`` for *vote*, and watch that it returns in time."""

    vote: Vote


@dataclass(frozen=True, slots=True)
class PutParts:
    """Create the parts of *attempt*. If one answer is lost the attempt is abandoned."""

    attempt: str
    parts: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class CleanParts:
    """Delete the parts that `kip30.coordinator.keys.is_outdated` at *generation*."""

    generation: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give the leadership up, and do not stand again for *barred_seconds*."""

    reason: str
    barred_seconds: float = 0.0


LeaderStep: TypeAlias = (
    ReadState
    | ReadGroup
    | WriteState
    | ReadParts
    | ReadInstances
    | Assign
    | PutParts
    | CleanParts
    | Resign
    | WaitForChange
)


# -- steps of the heartbeat task


@dataclass(frozen=True, slots=True)
class LookForLeader:
    """Read whether the group has a leader."""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leave because the application does not poll."""

    reason: str


HeartbeatStep: TypeAlias = ReadState | LookForLeader | LeaveGroup | WaitForChange
