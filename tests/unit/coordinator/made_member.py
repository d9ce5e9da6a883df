"""Facts of members, for tests: a dynamic member ``a``, and a static one of the instance ``k``."""

from dataclasses import replace
from typing import Any

from kip30.coordinator.decisions import MemberFacts, MemberProfile, StateReading
from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.records import Assignment, StateRecord
from kip30.driver.records import Version

from .made import NONCE, assignment, record, state

OFFER = (JoinGroupMetadata("p", b""),)


def profile(**fields: Any) -> MemberProfile:
    settings: dict[str, Any] = {
        "member_id": "a",
        "instance": "a",
        "protocol_type": "test",
        "rebalance_timeout_seconds": 60.0,
        "margin_seconds": 1.0,
    }
    return MemberProfile(**{**settings, **fields})


DYNAMIC = MemberFacts(now=100.0, nonce=NONCE, profile=profile(), lease_deadline=1e9)
STATIC = replace(
    DYNAMIC,
    profile=profile(instance="k"),
    claim=Version(5),
    claimed_at=50.0,
)


def reading(found: StateRecord | None, version: int = 10, **fields: Any) -> StateReading:
    settings: dict[str, Any] = {"sent_at": 99.0, "holder": "a"}
    known = None if found is None else Version(version)
    return StateReading(found, known, **{**settings, **fields})


def knowing(facts: MemberFacts, found: StateRecord | None, **fields: Any) -> MemberFacts:
    return replace(facts.read(reading(found)), **fields)


def joined(
    facts: MemberFacts, found: StateRecord | None, *, number: int, **fields: Any
) -> MemberFacts:
    shown = record(facts.profile.instance, round=number, instance_version=facts.claim, **fields)
    return knowing(facts, found, record=shown, is_acknowledged=True)


def given(generation: int, one: Assignment, **fields: Any) -> StateRecord:
    return state(generation, inline={"a": one, "k": one}, **fields)


def holding(facts: MemberFacts, generation: int, one: Assignment) -> MemberFacts:
    """Return *facts* after the member has taken *one* up in a stable state."""
    now_joined = joined(facts, given(generation, one), number=generation)
    return now_joined.taken_up(one)


SHARE = assignment("a", share=b"share")
HELD = holding(DYNAMIC, 4, SHARE)
