"""No clock is read, and those of different machines are never compared (K58).

Each process of the model has a clock that jumps. Here each decision of some schedules is made a
second time, by a process whose clock shows another time: only the moments in the step differ.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from kip30.coordinator.decisions import (
    LeaderFacts,
    MemberFacts,
    StateReading,
    leader_next,
    member_next,
)
from kip30.coordinator.decisions.steps import WaitForChange

from . import process
from .model import Schedule

Facts = TypeVar("Facts", MemberFacts, LeaderFacts)

LATER = 2.0**30
"""Exact beside the whole numbers of the model's clocks."""


def later(moment: float | None) -> float | None:
    return None if moment is None else moment + LATER


def shifted(values: Any, *names: str) -> Any:
    return replace(values, **{name: later(getattr(values, name)) for name in names})


def other_reading(reading: StateReading | None) -> StateReading | None:
    return None if reading is None else reading._replace(sent_at=later(reading.sent_at))


def other_member(facts: MemberFacts) -> MemberFacts:
    moved: MemberFacts = shifted(
        facts, "now", "arrived_at", "claimed_at", "joined_at", "lease_deadline"
    )
    own = shifted(facts.own, "confirmed_at") if facts.own else None
    return replace(moved, reading=other_reading(facts.reading), own=own)


def other_leader(facts: LeaderFacts) -> LeaderFacts:
    moved: LeaderFacts = shifted(
        facts, "now", "noticed_at", "newcomer_at", "began_at", "committed_at"
    )
    return replace(
        moved,
        reading=other_reading(facts.reading),
        absent_since={name: moment + LATER for name, moment in facts.absent_since.items()},
        formation=shifted(facts.formation, "assign_by") if facts.formation else None,
    )


def checked(
    decide: Callable[[Facts], object], other: Callable[[Facts], Facts], seen: list[str]
) -> Callable[[Facts], object]:
    def decided(facts: Facts) -> object:
        step = decide(facts)
        expected = shifted(step, "until") if isinstance(step, WaitForChange) else step
        found = decide(other(facts))
        assert type(found) is type(expected)
        assert str(found) == str(expected)
        seen.append(type(step).__name__)
        return step

    return decided


@pytest.mark.case("K58")
def test_a_decision_does_not_depend_on_what_the_clock_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(process, "member_next", checked(member_next, other_member, seen))
    monkeypatch.setattr(process, "leader_next", checked(leader_next, other_leader, seen))
    runs = [Schedule(seed).run() for seed in range(4)]
    assert [run.errors for run in runs] == [[]] * len(runs)
    assert {"WaitForChange", "TakeUp", "ReportLoss", "Assign", "WriteState"} <= {*seen}
    assert len(seen) > 1_000
