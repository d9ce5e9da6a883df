"""Members that stand for election: few in a large group, so that few race when a leader dies.

Up to 32 members all stand. In a larger group five do, those with the lowest checksums of their
ids, and the leader; each learns it from its assignment. A member that has no assignment yet stands
in a group that has no generation, and in a small one that has no leader: the last member may have
gone before it came. All others stand once no leader was seen for longer than a session timeout,
each at a different moment.
"""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from kip30.coordinator.records import PresentMember, StateRecord

FEW = 32
"""Largest group in which all members stand."""
STANDBYS = 5
"""Number of members that stand in a larger group, besides the leader."""


class CandidacyFacts(NamedTuple):
    """The facts that decide whether a member stands.

    Attributes:
        now: The present, on any clock that never goes back.
        eligible: Whether the member may lead at all.
        barred_until: Before when it may not, because its assignment has failed.
        is_standby: Whether its assignment makes it a stand-by; None while it has none.
        state: That of the group; None if there is none.
        leaderless_since: Since when no leader was seen; None while one is.
        size: How many members the group had when no leader was seen; None if that is not known.
        session_timeout_seconds: The locator's.
        jitter: A random number from 0 to 1, the same for the whole wait.
    """

    now: float
    eligible: bool
    barred_until: float
    is_standby: bool | None
    state: StateRecord | None
    leaderless_since: float | None
    size: int | None
    session_timeout_seconds: float
    jitter: float


def may_stand(facts: CandidacyFacts) -> bool:
    """Return whether the member is to be nominated now."""
    if not facts.eligible or facts.now < facts.barred_until:
        return False
    if facts.is_standby or facts.state is None or facts.state.generation == 0:
        return True
    if facts.leaderless_since is None:
        return False
    if facts.is_standby is None and facts.size is not None and facts.size <= FEW:
        return True
    pause = facts.session_timeout_seconds * (1 + facts.jitter)
    return facts.now >= facts.leaderless_since + pause


def standbys(members: Sequence[PresentMember], leader_id: str) -> frozenset[str]:
    """Return the ids of the members that stand in a generation of *members*."""
    eligible = [one.member_id for one in members if one.record.eligible]
    if len(members) > FEW:
        chosen = sorted(eligible, key=lambda name: (crc32(name.encode()), name))[:STANDBYS]
        eligible = [*chosen, *(name for name in eligible if name == leader_id)]
    return frozenset(eligible)
