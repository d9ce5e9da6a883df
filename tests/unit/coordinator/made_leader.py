"""Facts of leaders, for tests: ``a`` leads a group of ``a`` and ``b`` in epoch 3."""

from dataclasses import replace
from typing import Any

from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import LeaderFacts, LeaderRules, StateReading
from kip30.coordinator.decisions.steps import WriteState
from kip30.coordinator.records import PresentMember, StateRecord
from kip30.driver.records import Version

from .made import NONCE, assignment, member, state

CONFIG = GroupConfig()
RULES = LeaderRules(member_id="a", epoch=3, config=CONFIG, session_timeout_seconds=10.0)
BLANK = LeaderFacts(now=100.0, nonce=NONCE, rules=RULES)
MEMBERS = (member("a", 1, round=4), member("b", 2, round=4))
JOINED = (member("a", 1, round=5), member("b", 2, round=5))
ROSTER = {"a": assignment("a", since=4), "b": assignment("b", since=4)}
STATIC = {"a": ROSTER["a"], "k": assignment("s", since=4, nonce="join of k")}
RETURNED = member("s", 2, instance="k", round=4)


def led(found: StateRecord | None, *members: PresentMember, **fields: Any) -> LeaderFacts:
    """Return the facts of a leader that has just read *found* and seen *members*."""
    version = None if found is None else Version(10)
    facts = replace(BLANK, **fields).saw_group(members)
    return facts.read(StateReading(found, version, facts.now))


def mine(generation: int, **fields: Any) -> StateRecord:
    return state(generation, **{"epoch": 3, "leader": "a", "inline": ROSTER, **fields})


def after(facts: LeaderFacts, seconds: float) -> LeaderFacts:
    return facts.at(facts.now + seconds, facts.nonce)


def settled(*members: PresentMember, **fields: Any) -> LeaderFacts:
    return led(mine(4, **fields), *(members or MEMBERS)).cleaned_up(4)


def forming(*members: PresentMember, **fields: Any) -> LeaderFacts:
    return led(mine(4, preparing=True, **fields), *members).cleaned_up(4)


def written(step: object) -> StateRecord:
    assert isinstance(step, WriteState)
    return step.record
