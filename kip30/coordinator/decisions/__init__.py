"""Next steps of a member and a leader, decided from facts: without I/O, threads, or a clock.

`member_next` and `leader_next` return one step at a time. The engine carries the step out, notes
the outcome by a method of the facts, and asks again. Time enters as the field ``now``, and random
text as the field ``nonce``; so the same facts give the same step, on every machine, and the model
of `tests/unit/coordinator` runs the code that ships.
"""

from kip30.coordinator.decisions.candidacy import CandidacyFacts, may_stand, standbys
from kip30.coordinator.decisions.forming import Formation
from kip30.coordinator.decisions.heartbeat import HeartbeatFacts, heartbeat_next
from kip30.coordinator.decisions.leader import leader_next
from kip30.coordinator.decisions.leader_facts import LeaderFacts, LeaderRules
from kip30.coordinator.decisions.member import member_next, member_state
from kip30.coordinator.decisions.member_facts import MemberFacts, MemberProfile, StateReading
from kip30.coordinator.decisions.validity import OwnGeneration, share_deadline
from kip30.coordinator.decisions.write_guards import after_refusal, guards

__all__ = [
    "CandidacyFacts",
    "Formation",
    "HeartbeatFacts",
    "LeaderFacts",
    "LeaderRules",
    "MemberFacts",
    "MemberProfile",
    "OwnGeneration",
    "StateReading",
    "after_refusal",
    "guards",
    "heartbeat_next",
    "leader_next",
    "may_stand",
    "member_next",
    "member_state",
    "share_deadline",
    "standbys",
]
