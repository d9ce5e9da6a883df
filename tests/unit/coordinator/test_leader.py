"""The next step of the leader."""

from dataclasses import replace
from typing import Any

import pytest

from kip30.coordinator.decisions import StateReading, leader_next
from kip30.coordinator.decisions.steps import (
    CleanParts,
    ReadInstances,
    ReadParts,
    ReadState,
    Resign,
    WaitForChange,
    WriteState,
)
from kip30.coordinator.records import GroupPhase, PresentMember, StateRecord
from kip30.driver.records import Condition, Version

from .made import NONCE, member
from .made_leader import (
    BLANK,
    MEMBERS,
    RETURNED,
    ROSTER,
    STATIC,
    after,
    led,
    mine,
    settled,
    written,
)

# -- taking over


def test_nothing_is_decided_before_the_state_was_read() -> None:
    assert leader_next(BLANK) == ReadState()


@pytest.mark.parametrize("found", [mine(4, epoch=2), mine(4, epoch=2, leader="b", preparing=True)])
def test_a_new_leader_writes_its_epoch_and_nothing_else(found: StateRecord) -> None:
    step = leader_next(led(found, *MEMBERS))
    expected = replace(found, epoch=3, leader="a")
    assert step == WriteState(expected, Version(10))


@pytest.mark.case("K52")
@pytest.mark.parametrize("found", [mine(4, epoch=4, leader="b"), mine(4, epoch=3, leader="b")])
def test_a_leader_whose_epoch_is_not_above_the_stored_one_resigns(found: StateRecord) -> None:
    assert isinstance(leader_next(led(found, *MEMBERS)), Resign)


def test_a_new_leader_reads_the_assignment_in_parts() -> None:
    facts = led(mine(4, parts=2, inline={}), *MEMBERS)
    attempt = facts.roster_attempt
    assert facts.noticed_at is None  # nothing is missed before it is known
    assert leader_next(facts) == ReadParts(attempt, (0, 1))
    facts = facts.read_parts({0: {"a": ROSTER["a"], "b": 2}, 1: None})
    assert leader_next(facts) == ReadParts(attempt, (2,))
    facts = facts.read_parts({2: {"b": ROSTER["b"]}})
    assert facts.roster == ROSTER
    assert leader_next(facts) == CleanParts(4)
    assert leader_next(facts.cleaned_up(4)) == WaitForChange()


def test_a_takeover_during_a_round_restarts_the_deadline() -> None:
    found = mine(4, epoch=2, leader="b", preparing=True)
    facts = led(found, *MEMBERS)
    record = written(leader_next(facts))
    facts = after(facts, 50.0).written(record, Version(11)).cleaned_up(4)
    assert leader_next(facts) == WaitForChange(210.0)


# -- causes of a round


def test_a_settled_group_has_no_round() -> None:
    assert leader_next(settled()) == WaitForChange()


@pytest.mark.parametrize(
    ("members", "fields"),
    [
        ((*MEMBERS, member("c", 3, round=5)), {}),  # a newcomer
        (MEMBERS[:1], {}),  # a dynamic member is gone
        ((MEMBERS[0], member("b", 2, round=4, rejoin=4)), {}),
        ((MEMBERS[0], member("b", 3, round=5)), {}),  # it has lost its session, and is back
    ],
)
def test_a_round_begins_after_a_pause(
    members: tuple[PresentMember, ...], fields: dict[str, Any]
) -> None:
    facts = settled(*members, **fields)
    assert leader_next(facts) == WaitForChange(100.1)
    step = leader_next(after(facts, 0.1))
    assert step == WriteState(replace(mine(4), phase=GroupPhase.PREPARING), Version(10))
    assert written(step).is_preparing


@pytest.mark.case("K44")
def test_work_that_was_withheld_needs_no_pause() -> None:
    assert written(leader_next(settled(follow_up=True))).is_preparing


@pytest.mark.case("K59")
def test_an_application_that_never_has_enough_rounds_gets_pauses() -> None:
    facts = replace(settled(follow_up=True), committed_at=99.0)
    for number in range(4):
        begun = written(leader_next(facts))
        facts = facts.written(begun, Version(11 + number))
        assert facts.streak == number + 1
        facts = facts.read(StateReading(mine(4, follow_up=True), Version(12 + number)))
    assert leader_next(facts) == WaitForChange(101.6)


def test_a_request_of_an_earlier_generation_is_no_cause() -> None:
    members = MEMBERS[0], member("b", 2, round=4, rejoin=3)
    assert leader_next(settled(*members)) == WaitForChange()


def test_a_cause_that_disappears_begins_no_round() -> None:
    facts = settled(*MEMBERS, member("c", 3, round=5))
    assert facts.noticed_at == 100.0
    assert after(facts, 0.05).saw_group(MEMBERS).noticed_at is None


@pytest.mark.case("K59")
def test_pauses_double_while_rounds_follow_each_other() -> None:
    pauses: list[float] = []
    facts = settled(*MEMBERS)
    for number in range(12):
        facts = replace(after(facts, 1.0), committed_at=facts.now)
        facts = facts.saw_group((*MEMBERS, member("c", 3, round=9)))
        step = leader_next(facts)
        assert isinstance(step, WaitForChange)
        assert step.until is not None
        pauses.append(round(step.until - facts.now, 3))
        begun = written(leader_next(facts.at(step.until, NONCE)))
        facts = facts.at(step.until, NONCE).written(begun, Version(11 + number))
        facts = facts.read(StateReading(mine(4), Version(12 + number))).saw_group(MEMBERS)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, *[3.2] * 7]
    quiet = replace(after(facts, 60.0), committed_at=facts.now)
    again = quiet.saw_group((*MEMBERS, member("c", 3, round=9)))
    assert again.written(written(leader_next(after(again, 10.0))), Version(90)).streak == 0


# -- an empty group


@pytest.mark.case("K27", "K28", "K29")
def test_the_first_round_waits_for_newcomers_but_not_for_ever() -> None:
    facts = led(None, member("a", 1, round=1))
    assert leader_next(facts) == WaitForChange(100.5)
    assert leader_next(led(None)) == WaitForChange()
    for number in range(3, 163):
        facts = after(facts, 0.4).saw_group((*facts.members, member(f"m{number}", number)))
        step = leader_next(facts)
        if isinstance(step, WriteState):
            break
        assert isinstance(step, WaitForChange)
        assert step.until == pytest.approx(min(facts.now + 0.5, 160.0))
    step = leader_next(facts)
    assert isinstance(step, WriteState)
    assert step.expected is Condition.ABSENT
    assert (step.record.generation, step.record.is_preparing, step.record.epoch) == (0, True, 3)
    assert facts.now == pytest.approx(160.0, abs=0.4)


@pytest.mark.case("K27")
def test_a_group_without_members_of_its_last_generation_counts_as_empty() -> None:
    facts = settled(member("c", 3, round=5))
    assert leader_next(facts) == WaitForChange(100.5)


@pytest.mark.case("K30")
def test_a_group_with_members_does_not_wait_for_more() -> None:
    facts = settled(*MEMBERS, member("c", 3, round=5))
    later = after(facts, 0.09).saw_group((*facts.members, member("d", 4, round=5)))
    assert leader_next(later) == WaitForChange(100.1)


# -- static members that are gone


@pytest.mark.case("K40", "K41")
def test_a_static_member_is_missed_when_its_grace_is_over() -> None:
    present = settled(MEMBERS[0], RETURNED, inline=STATIC)
    assert leader_next(present) == WaitForChange()
    gone = after(present, 7.0).saw_group(MEMBERS[:1])
    assert leader_next(gone) == ReadInstances(("k",))
    gone = gone.read_instances({"k": "s"})
    assert leader_next(gone) == WaitForChange(117.0)
    over = after(gone, 10.0)
    assert leader_next(over) == WaitForChange(117.1)
    assert written(leader_next(after(over, 0.1))).is_preparing
    back = after(gone, 9.0).saw_group((MEMBERS[0], member("t", 3, instance="k")))
    assert leader_next(back) == WaitForChange()
    assert leader_next(after(back, 1.0).saw_group(MEMBERS[:1])) == ReadInstances(("k",))


@pytest.mark.case("K40")
def test_a_static_member_that_has_left_is_missed_at_once() -> None:
    gone = settled(MEMBERS[0], inline=STATIC).read_instances({"k": ""})
    assert leader_next(gone) == WaitForChange(100.1)
