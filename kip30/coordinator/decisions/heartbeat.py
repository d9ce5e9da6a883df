"""Heartbeats of a member: its task reads the state, and leaves for a silent application.

A member whose application does not poll stays in the group, as its session is renewed elsewhere,
and would hold a share without limit. So it leaves after a rebalance timeout without a poll (K26),
and one that never takes its share up is found the same way, without acknowledgements (K25).
"""

from typing import NamedTuple

from kip30.coordinator.decisions.steps import (
    HeartbeatStep,
    LeaveGroup,
    LookForLeader,
    ReadState,
    WaitForChange,
)

_BEATS_PER_LOOK = 3


class HeartbeatFacts(NamedTuple):
    """Facts on which the next step of the heartbeat task depends.

    Attributes:
        now: The present, on any clock that never goes back.
        leave_at: When the application will have been silent for too long.
        read_at: When the last reading of the state was sent.
        beats: How many readings were sent.
        looks: How many times the heartbeat task looked for a leader.
        heartbeat_seconds: How far readings are apart.
        rebalance_timeout_seconds: How long the application may be silent.
    """

    now: float
    leave_at: float
    read_at: float
    beats: int
    looks: int
    heartbeat_seconds: float
    rebalance_timeout_seconds: float


def heartbeat_next(facts: HeartbeatFacts) -> HeartbeatStep:
    """Return the next step of the heartbeat task that knows *facts*."""
    if facts.now >= facts.leave_at:
        silence = f"{facts.rebalance_timeout_seconds:g} s"
        return LeaveGroup(f"the application has not polled for {silence}")
    if facts.looks < facts.beats // _BEATS_PER_LOOK:
        return LookForLeader()
    read_at = facts.read_at + facts.heartbeat_seconds
    return ReadState() if facts.now >= read_at else WaitForChange(min(read_at, facts.leave_at))
