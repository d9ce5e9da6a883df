"""The three records of a group: its state, a member, a part of an assignment.

The state is the only record on which decisions rest: it is changed by compare-and-set alone, and a
generation exists from the moment at which the state names it. Members write their own record in the
group; the leader writes parts before it commits the state that names them.

No record holds a moment: clocks of different machines are never compared.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from typing_extensions import override

from kip30.codecs import Codec
from kip30.coordinator import record_encoding
from kip30.coordinator.interface import JoinGroupMetadata
from kip30.driver.records import Version, parse_version
from kip30.errors import CodecError, UsageError, ValueTooLargeError

STATE_BYTES = 10 * 1024
"""The largest state record: every member reads it with every heartbeat."""
MEMBER_BYTES = 256 * 1024
"""The largest record of a member. On Cassandra it travels with every renewal: keep it small."""

_FORMAT = 1
_DIGEST_BYTES = 8
_NONE = -1


class GroupPhase(Enum):
    """Phase of a group: whether a round is under way."""

    PREPARING = "PREPARING"
    STABLE = "STABLE"


class Assignment(NamedTuple):
    """Result of a generation for one instance: a share, or a refusal.

    Attributes:
        member_id: The member that answers for the instance; the instance itself if it is dynamic.
        nonce: That of the join which is answered.
        digest: That of the metadata of this join.
        since: The generation in which these bytes were first given to this instance. While it
            stays, work that belongs to the share continues through later generations (KIP-1251).
        is_standby: Whether the member stands for election.
        share: The application's bytes.
        refusal: Why the member is not part of the generation; empty if it is.
        record: The record with which a static member has joined, as `MEMBER` encodes it: a later
            leader keeps the share of an absent one by that. Empty for any other member.
    """

    member_id: str
    nonce: str
    digest: str
    since: int
    is_standby: bool = False
    share: bytes = b""
    refusal: str = ""
    record: bytes = b""


Part: TypeAlias = Mapping[str, Assignment | int]
"""Assignments by instance, or the number of the part that has one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """The state of a group.

    Attributes:
        phase: PREPARING while the members join the next generation.
        generation: The last one that was committed; 0 before the first.
        attempt: Names the publication of this generation, and tells it from one with the same
            number in a history that the store has lost. Empty before the first.
        parts: Into how many parts its assignments are divided; 0 if they are `inline`.
        inline: The assignments by instance.
        epoch: The leader's, of the group's election.
        leader: Its member id.
        protocol_type: That of all members of the generation.
        protocol: The one that they agreed on.
        follow_up: Whether another round must follow at once, because work was withheld.
        history: A random text, the same from the first state of the group on. A group that was
            deleted, or whose state the store has lost, begins another one, again at generation 1.
            Empty if an older kip30 has written a state of the group.
    """

    phase: GroupPhase
    generation: int
    epoch: int
    leader: str
    attempt: str = ""
    parts: int = 0
    inline: Mapping[str, Assignment] = field(default_factory=dict[str, Assignment])
    protocol_type: str = ""
    protocol: str = ""
    follow_up: bool = False
    history: str = ""

    @property
    def round(self) -> int:
        """The number of the newest round: that of the generation that it forms or has formed."""
        return self.generation + (self.phase is GroupPhase.PREPARING)

    @property
    def is_preparing(self) -> bool:
        """True while a round is under way."""
        return self.phase is GroupPhase.PREPARING


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """Record that a member shows in its group.

    Attributes:
        instance: The instance id of a static member; of a dynamic one its member id.
        instance_version: At which version this member has the key of its instance; None for a
            dynamic member. Of two members of one instance the greater one counts.
        protocol_type: Of its coordinator.
        rebalance_timeout_seconds: How long a round waits for it.
        round: The newest one that it has joined; 0 for none.
        nonce: New with every join.
        digest: Of its metadata, without what changes with every share; it is the member's to make.
        generation: The one it had when it joined; -1 for none.
        rejoin: The generation from which it asks for a round; -1 for none.
        eligible: Whether it may lead.
        cooperative: Whether it keeps its work while it joins, and gives items up by joining
            without them. If not, it gives all of it up before it joins.
        protocols: The protocols that it offers, the preferred one first.
    """

    instance: str
    nonce: str
    protocol_type: str
    rebalance_timeout_seconds: float
    protocols: tuple[JoinGroupMetadata, ...]
    digest: str
    instance_version: Version | None = None
    round: int = 0
    generation: int = _NONE
    rejoin: int = _NONE
    eligible: bool = True
    cooperative: bool = False

    @property
    def is_static(self) -> bool:
        """True if another process may take this member's place."""
        return self.instance_version is not None


class PresentMember(NamedTuple):
    """A member of the group as one reading of it shows it.

    Attributes:
        member_id: Its id in the group.
        incarnation: Its place in the order in which the members joined.
        record: The record that it shows.
    """

    member_id: str
    incarnation: Version
    record: MemberRecord


class GroupReading(NamedTuple):
    """The members of the group at one moment.

    Attributes:
        order: Its place among all views of the group that this client has seen.
        members: Those whose records can be read.
        unreadable: The ids of the others: of a newer kip30's, or with damaged records.
    """

    order: int
    members: tuple[PresentMember, ...]
    unreadable: frozenset[str]


def metadata_digest(protocols: tuple[JoinGroupMetadata, ...]) -> str:
    """Return the digest of all of *protocols*, in their order."""
    hashed = blake2b(digest_size=_DIGEST_BYTES)
    for name, metadata in protocols:
        for piece in (name.encode(), metadata):
            hashed.update(len(piece).to_bytes(8) + piece)
    return hashed.hexdigest()


class _StateCodec(Codec[StateRecord]):
    name = "kip30 group state"
    _kind = "group state"

    @override
    def encode(self, value: StateRecord) -> bytes:
        rows, shares = _rows(value.inline)
        fields: dict[str, object] = {
            "phase": value.phase.value,
            "generation": value.generation,
            "attempt": value.attempt,
            "parts": value.parts,
            "epoch": value.epoch,
            "leader": value.leader,
            "protocol_type": value.protocol_type,
            "protocol": value.protocol,
            "follow_up": value.follow_up,
            "assignments": rows,
        }
        if value.history:
            fields["history"] = value.history
        return _fit(
            self._kind, record_encoding.write(self._kind, _FORMAT, fields, shares), STATE_BYTES
        )

    @override
    def decode(self, data: bytes) -> StateRecord:
        fields, rest = record_encoding.read(self._kind, _FORMAT, data)
        inline = _part(self._kind, fields, rest)
        try:
            phase = GroupPhase(fields.text("phase"))
        except ValueError:
            record_encoding.damaged(self._kind, "its phase is unknown")
        return StateRecord(
            phase=phase,
            generation=fields.count("generation"),
            attempt=fields.text("attempt"),
            parts=fields.count("parts"),
            inline={name: one for name, one in inline.items() if isinstance(one, Assignment)},
            epoch=fields.count("epoch"),
            leader=fields.text("leader"),
            protocol_type=fields.text("protocol_type"),
            protocol=fields.text("protocol"),
            follow_up=fields.flag("follow_up"),
            history=fields.text("history", ""),
        )


class _MemberCodec(Codec[MemberRecord]):
    name = "kip30 group member"
    _kind = "group member"

    @override
    def encode(self, value: MemberRecord) -> bytes:
        version = value.instance_version
        fields: dict[str, object] = {
            "instance": value.instance,
            "instance_version": "" if version is None else str(version),
            "protocol_type": value.protocol_type,
            "rebalance_timeout_seconds": value.rebalance_timeout_seconds,
            "round": value.round,
            "nonce": value.nonce,
            "digest": value.digest,
            "generation": value.generation,
            "rejoin": value.rejoin,
            "eligible": value.eligible,
            "cooperative": value.cooperative,
            "protocols": [{"name": n, "bytes": len(metadata)} for n, metadata in value.protocols],
        }
        metadata = b"".join(metadata for _, metadata in value.protocols)
        return _fit(
            self._kind, record_encoding.write(self._kind, _FORMAT, fields, metadata), MEMBER_BYTES
        )

    @override
    def decode(self, data: bytes) -> MemberRecord:
        fields, rest = record_encoding.read(self._kind, _FORMAT, data)
        protocols = tuple(
            JoinGroupMetadata(row.text("name"), rest.take(row.count("bytes")))
            for row in fields.rows("protocols")
        )
        rest.end()
        return MemberRecord(
            instance=fields.text("instance"),
            instance_version=_version(self._kind, fields.text("instance_version")),
            protocol_type=fields.text("protocol_type"),
            rebalance_timeout_seconds=fields.seconds("rebalance_timeout_seconds"),
            round=fields.count("round"),
            nonce=fields.text("nonce"),
            digest=fields.text("digest"),
            generation=fields.count("generation", least=_NONE),
            rejoin=fields.count("rejoin", least=_NONE),
            eligible=fields.flag("eligible"),
            cooperative=fields.flag("cooperative"),
            protocols=protocols,
        )


class _PartCodec(Codec[Part]):
    name = "kip30 part of an assignment"
    _kind = "part of an assignment"

    @override
    def encode(self, value: Part) -> bytes:
        rows, shares = _rows(value)
        return record_encoding.write(self._kind, _FORMAT, {"assignments": rows}, shares)

    @override
    def decode(self, data: bytes) -> Part:
        return _part(self._kind, *record_encoding.read(self._kind, _FORMAT, data))


STATE: Codec[StateRecord] = _StateCodec()
"""Of the state record. `ValueTooLargeError` if it is above `STATE_BYTES`."""
MEMBER: Codec[MemberRecord] = _MemberCodec()
"""Of the record of a member. `ValueTooLargeError` if it is above `MEMBER_BYTES`."""
PART: Codec[Part] = _PartCodec()
"""Of a part of an assignment."""


def _rows(part: Part) -> tuple[list[dict[str, object]], bytes]:
    shares = (one.share for one in part.values() if isinstance(one, Assignment))
    return [_row(instance, one) for instance, one in part.items()], b"".join(shares)


def _row(instance: str, one: Assignment | int) -> dict[str, object]:
    """Return the row of one instance, without fields that are as usual: there may be thousands."""
    if isinstance(one, int):
        return {"instance": instance, "part": one}
    row: dict[str, object] = {"instance": instance, "nonce": one.nonce, "digest": one.digest}
    row |= {"since": one.since, "bytes": len(one.share)}
    if one.member_id != instance:
        row["member"] = one.member_id
    if one.is_standby:
        row["standby"] = True
    if one.refusal:
        row["refusal"] = one.refusal
    if one.record:
        # In the line, where an older kip30 ignores it; the bytes behind it are all counted.
        row["record"] = b64encode(one.record).decode()
    return row


def _part(kind: str, fields: record_encoding.Fields, rest: record_encoding.Blobs) -> Part:
    part: dict[str, Assignment | int] = {}
    for row in fields.rows("assignments"):
        instance = row.text("instance")
        if instance in part:
            record_encoding.damaged(kind, f"{instance!r:.60} is in it twice")
        elsewhere = row.count("part", least=_NONE, default=_NONE)
        part[instance] = elsewhere if elsewhere >= 0 else _assignment(instance, row, rest)
    rest.end()
    return part


def _assignment(
    instance: str, row: record_encoding.Fields, rest: record_encoding.Blobs
) -> Assignment:
    return Assignment(
        member_id=row.text("member", instance),
        nonce=row.text("nonce"),
        digest=row.text("digest"),
        since=row.count("since"),
        is_standby=row.flag("standby"),
        share=rest.take(row.count("bytes")),
        refusal=row.text("refusal", ""),
        record=_bytes_in(row.text("record", "")),
    )


def _bytes_in(text: str) -> bytes:
    """Return the bytes that *text* encodes; empty if it is damaged: the share counts without."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _version(kind: str, text: str) -> Version | None:
    try:
        return parse_version(text) if text else None
    except UsageError:
        record_encoding.damaged(kind, "the version of its instance is none")


def _fit(kind: str, data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ValueTooLargeError(f"the record of a {kind} has {len(data)} bytes: {limit} at most")
    return data


def joined_member(instance: str, one: Assignment) -> PresentMember | None:
    """Return the static member of *instance* as it has joined the generation of *one*.

    None if its record is not there, or cannot be read. Its incarnation is not kept: it counts as
    the first.
    """
    try:
        record = MEMBER.decode(one.record) if one.record else None
    except CodecError:
        return None
    if record is None or record.instance != instance or not record.is_static:
        return None
    return PresentMember(one.member_id, Version(0), record)


def decoded_part(data: bytes | None) -> Part | None:
    """Return the part in *data*; None if it was collected or cannot be read.

    A member whose part cannot be read is left out, as if the part had been collected: it asks for
    another round, whose parts are new.
    """
    if data is None:
        return None
    try:
        return PART.decode(data)
    except CodecError:
        return None
