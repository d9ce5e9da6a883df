"""The members that stand for election."""

from zlib import crc32

import pytest

from kip30.coordinator.decisions import CandidacyFacts, may_stand, standbys
from kip30.coordinator.decisions.candidacy import FEW, STANDBYS

from .made import member, state

FACTS = CandidacyFacts(
    now=100.0,
    eligible=True,
    barred_until=0.0,
    is_standby=True,
    state=state(4),
    leaderless_since=None,
    size=None,
    session_timeout_seconds=10.0,
    jitter=0.5,
)


def test_all_stand_in_a_small_group() -> None:
    members = [member(f"m{number}", eligible=number != 3) for number in range(FEW)]
    assert standbys(members, "m0") == {one.member_id for one in members} - {"m3"}


def test_five_and_the_leader_stand_in_a_large_group() -> None:
    members = [member(f"m{number}") for number in range(FEW + 1)]
    ordered = sorted((one.member_id for one in members), key=lambda name: crc32(name.encode()))
    assert standbys(members, ordered[-1]) == {*ordered[:STANDBYS], ordered[-1]}
    assert standbys(members, ordered[0]) == {*ordered[:STANDBYS]}


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({}, True),
        ({"eligible": False}, False),
        ({"barred_until": 100.1}, False),
        ({"barred_until": 100.0}, True),
        ({"is_standby": False}, False),
        ({"is_standby": None}, False),
        ({"is_standby": None, "state": None}, True),
        ({"is_standby": None, "leaderless_since": 99.0, "size": FEW}, True),
        ({"is_standby": None, "leaderless_since": 99.0, "size": FEW + 1}, False),
        ({"is_standby": False, "leaderless_since": 99.0, "size": 2}, False),
        ({"is_standby": None, "state": state(0, preparing=True)}, True),
        ({"is_standby": False, "leaderless_since": 85.1}, False),
        ({"is_standby": False, "leaderless_since": 85.0}, True),
        ({"is_standby": False, "leaderless_since": 85.0, "jitter": 0.6}, False),
        ({"is_standby": False, "leaderless_since": 85.0, "eligible": False}, False),
    ],
)
def test_eligible_standbys_stand_and_other_members_when_leaderless(
    changes: dict[str, object], *, stands: bool
) -> None:
    assert may_stand(FACTS._replace(**changes)) == stands  # type: ignore[arg-type]
