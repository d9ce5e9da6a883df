"""The phases of one candidacy, from `nominate` until the store holds no claim of it.

`TRANSITIONS` is the whole life of a candidacy. `docs/architecture.md` draws it.

A claim that was sent may be granted until it is answered, also after the candidate has resigned. So
a candidacy leaves in one of two phases, by whether a claim of it is without an answer.
"""

from collections.abc import Mapping
from enum import Enum


class CandidacyPhase(Enum):
    """Phase of a candidacy. GONE and CLOSED are final."""

    WAITING = "waiting"
    UNCERTAIN = "uncertain"
    LEADING = "leading"
    LEAVING_UNCERTAIN = "leaving, uncertain"
    LEAVING = "leaving"
    GONE = "gone"
    CLOSED = "closed"


class CandidacyEvent(Enum):
    """An event that moves a candidacy to its next phase."""

    CLAIM_SENT = "a claim is sent"
    GRANTED = "granted"
    VETOED = "vetoed"
    NOT_GRANTED = "held by another, or not sent"
    TERM_LOST = "the lease ends, or the store has another leader"
    RESIGNED = "resign"
    SETTLED = "not in the store, or released"
    RELEASED = "the store confirms the release, or the lease has ended"
    CLOSED = "the locator closes"


_Phase, _Event = CandidacyPhase, CandidacyEvent

TRANSITIONS: Mapping[CandidacyPhase, Mapping[CandidacyEvent, CandidacyPhase]] = {
    _Phase.WAITING: {
        _Event.CLAIM_SENT: _Phase.UNCERTAIN,
        _Event.RESIGNED: _Phase.LEAVING,
        _Event.CLOSED: _Phase.CLOSED,
    },
    _Phase.UNCERTAIN: {
        _Event.CLAIM_SENT: _Phase.UNCERTAIN,
        _Event.GRANTED: _Phase.LEADING,
        _Event.VETOED: _Phase.WAITING,
        _Event.NOT_GRANTED: _Phase.WAITING,
        _Event.RESIGNED: _Phase.LEAVING_UNCERTAIN,
        _Event.CLOSED: _Phase.CLOSED,
    },
    _Phase.LEADING: {
        _Event.TERM_LOST: _Phase.WAITING,
        _Event.RESIGNED: _Phase.LEAVING,
        _Event.CLOSED: _Phase.CLOSED,
    },
    _Phase.LEAVING_UNCERTAIN: {
        _Event.CLAIM_SENT: _Phase.LEAVING_UNCERTAIN,  # it resigned just before
        _Event.GRANTED: _Phase.LEAVING,
        _Event.VETOED: _Phase.LEAVING,
        _Event.NOT_GRANTED: _Phase.LEAVING,
        _Event.SETTLED: _Phase.LEAVING,
        _Event.CLOSED: _Phase.CLOSED,
    },
    _Phase.LEAVING: {
        _Event.CLAIM_SENT: _Phase.LEAVING_UNCERTAIN,  # it resigned just before
        _Event.RELEASED: _Phase.GONE,
        _Event.CLOSED: _Phase.CLOSED,
    },
    _Phase.GONE: {},
    # The task may be at work still; the end of the session informs the store.
    _Phase.CLOSED: dict.fromkeys(CandidacyEvent, CandidacyPhase.CLOSED),
}

UNCERTAIN_PHASES = frozenset({_Phase.UNCERTAIN, _Phase.LEAVING_UNCERTAIN})
"""The phases in which a claim may be granted whose answer has not come."""


def next_phase(phase: CandidacyPhase, event: CandidacyEvent) -> CandidacyPhase:
    """Return the phase to which *event* leads.

    Raises:
        RuntimeError: The table does not have it, which is a defect.
    """
    following = TRANSITIONS[phase].get(event)
    if following is None:
        raise RuntimeError(f"an illegal transition: {event.name} while {phase.value}")
    return following
