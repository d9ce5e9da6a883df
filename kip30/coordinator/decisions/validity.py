"""Until when a member may work on its share (K65).

A share moves to another member in three cases: its member gives it up; its record is gone, so its
lease has ended by its own clock; or the greatest rebalance timeout has passed since the leader knew
that the state is PREPARING. In the last case no reading that was sent later has seen the state
STABLE. So a member that stops one rebalance timeout after it *sent* the last reading that saw
STABLE at its generation stops before its share moves. A reading that sees PREPARING proves
nothing, and a generation that is taken up while the next one is formed is not valid at all until a
reading sees it STABLE. Clocks must run equally fast within the margin, as for leases.

Decided here: the reading must have been sent after the member joined. A member whose session ended
may come back before its share is given away; a reading from the time in between shows the state
STABLE although the round that gives the share away needs to wait for no record of this member.

The reading of a static member must also have found the instance to be its own. That cannot prevent
an overlap with its replacement, which does not wait for a round; it makes it end with the next
reading. `GroupConfig.wait_for_predecessor` prevents it.
"""

import math
from dataclasses import dataclass, replace

from kip30.coordinator.records import Assignment, StateRecord
from kip30.driver.records import Version

NEVER = -math.inf
"""The deadline of a share that is not valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGeneration:
    """The generation that a member has taken up.

    Attributes:
        number: Its number.
        attempt: Its publication. A state with the same number and another attempt is of another
            history: the store was emptied.
        protocol: The one it was assigned by.
        assignment: What it gave to the member.
        state_version: The newest version at which the state was seen with this share unchanged.
        confirmed_at: When the newest reading was sent that saw the state STABLE at this
            generation; None before the first.
        is_given_up: Whether the member has given all of its share up, for the next round.
        history: That of the state which named it.
    """

    number: int
    attempt: str
    protocol: str
    assignment: Assignment
    state_version: Version
    confirmed_at: float | None = None
    is_given_up: bool = False
    history: str = ""


def is_newest(own: OwnGeneration, state: StateRecord) -> bool:
    """Return whether *own* is the last generation that was committed in *state*."""
    return state.generation == own.number and state.attempt == own.attempt


def confirms(own: OwnGeneration, state: StateRecord) -> bool:
    """Return whether *state* proves that no leader has begun to give the share of *own* away."""
    return not state.is_preparing and is_newest(own, state)


def seen(
    own: OwnGeneration, state: StateRecord, version: Version, *, sent_at: float | None
) -> OwnGeneration:
    """Return *own* after a reading of *state*; *sent_at* is None if it confirms nothing."""
    if not is_newest(own, state):
        return own
    if sent_at is None or not confirms(own, state):
        return replace(own, state_version=version)
    before = NEVER if own.confirmed_at is None else own.confirmed_at
    return replace(own, state_version=version, confirmed_at=max(before, sent_at))


def share_deadline(
    own: OwnGeneration | None,
    *,
    lease_deadline: float,
    rebalance_timeout_seconds: float,
    margin_seconds: float,
) -> float:
    """Return until when the share of *own* is valid, on the clock of the lease.

    Args:
        own: What the member has taken up; None for nothing.
        lease_deadline: Until when its membership is valid.
        rebalance_timeout_seconds: The member's own, as its record has it.
        margin_seconds: By how much two clocks may differ over that time.
    """
    if own is None or own.confirmed_at is None or own.is_given_up:
        return NEVER
    return min(lease_deadline, own.confirmed_at + rebalance_timeout_seconds - margin_seconds)
