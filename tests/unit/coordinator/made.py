"""Records and members for tests, with as little as a test has to say."""

from typing import Any

from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.records import (
    Assignment,
    GroupPhase,
    MemberRecord,
    PresentMember,
    StateRecord,
)
from kip30.driver.records import Version

NONCE = "0123456789abcdef"


def record(instance: str, **fields: Any) -> MemberRecord:
    offered = fields.pop("protocols", ("p",))
    settings: dict[str, Any] = {
        "nonce": f"join of {instance}",
        "protocol_type": "test",
        "rebalance_timeout_seconds": 60.0,
        "digest": "same",
        "protocols": tuple(JoinGroupMetadata(name, b"") for name in offered),
    }
    return MemberRecord(instance=instance, **{**settings, **fields})


def member(member_id: str, incarnation: int = 1, **fields: Any) -> PresentMember:
    """Return a member; it is static if *fields* have an instance."""
    instance = fields.pop("instance", member_id)
    if instance != member_id:
        fields.setdefault("instance_version", Version(incarnation))
    return PresentMember(member_id, Version(incarnation), record(instance, **fields))


def assignment(member_id: str, **fields: Any) -> Assignment:
    settings: dict[str, Any] = {"nonce": f"join of {member_id}", "digest": "same", "since": 1}
    return Assignment(member_id, **{**settings, **fields})


def state(generation: int, *, preparing: bool = False, **fields: Any) -> StateRecord:
    settings: dict[str, Any] = {
        "epoch": 1,
        "leader": "a",
        "attempt": f"{generation}.1.0123abcd" if generation else "",
        "protocol_type": "test" if generation else "",
        "protocol": "p" if generation else "",
    }
    phase = GroupPhase.PREPARING if preparing else GroupPhase.STABLE
    return StateRecord(phase=phase, generation=generation, **{**settings, **fields})
