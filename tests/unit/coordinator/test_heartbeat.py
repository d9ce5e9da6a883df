"""Work of a member beside the application's thread."""

import pytest

from kip30.coordinator.decisions import HeartbeatFacts, heartbeat_next
from kip30.coordinator.decisions.steps import (
    LeaveGroup,
    LookForLeader,
    ReadState,
    WaitForChange,
)

FACTS = HeartbeatFacts(
    now=100.0,
    leave_at=160.0,
    read_at=100.0,
    beats=1,
    looks=0,
    heartbeat_seconds=3.0,
    rebalance_timeout_seconds=60.0,
)


def test_it_reads_the_state_with_every_heartbeat() -> None:
    assert heartbeat_next(FACTS) == WaitForChange(103.0)
    assert heartbeat_next(FACTS._replace(now=102.9)) == WaitForChange(103.0)
    assert heartbeat_next(FACTS._replace(now=103.0)) == ReadState()


def test_it_looks_for_a_leader_every_third_time() -> None:
    looks = [
        heartbeat_next(FACTS._replace(beats=beats, looks=(beats - 1) // 3)) == LookForLeader()
        for beats in range(1, 10)
    ]
    assert looks == [False, False, True] * 3


@pytest.mark.case("K26")
def test_it_leaves_when_the_application_has_not_polled_for_a_rebalance_timeout() -> None:
    step = heartbeat_next(FACTS._replace(now=160.0, beats=9))
    assert isinstance(step, LeaveGroup)
    assert "60 s" in step.reason
    assert heartbeat_next(FACTS._replace(now=159.9, read_at=159.0)) == WaitForChange(160.0)
    assert heartbeat_next(FACTS._replace(now=160.0, leave_at=161.0)) == ReadState()
