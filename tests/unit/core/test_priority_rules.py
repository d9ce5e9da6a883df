"""The rules of priorities, by a clock of numbers."""

from typing import Any

import pytest

from kip30 import UsageError
from kip30.driver.records import Version
from kip30.runtime.candidate_line import decode_place, encode_place
from kip30.runtime.priority_rules import PreferredCandidate, PriorityRules, check_priority

TURN, SESSION = 1.0, 10.0


def other(priority: int, version: int = 1, candidate: str = "x") -> PreferredCandidate:
    return PreferredCandidate(Version(version), candidate, priority)


@pytest.fixture
def rules() -> PriorityRules:
    return PriorityRules(TURN, SESSION)


def test_only_a_higher_priority_is_better(rules: PriorityRules) -> None:
    rules.saw_others([other(5)])
    assert rules.better(4, 0) == other(5)
    assert rules.better(5, 0) is None
    assert rules.better(6, 0) is None


def test_a_turn_keeps_lower_priorities_back_and_is_left_once(rules: PriorityRules) -> None:
    rules.saw_others([other(5)])
    rules.leave_turn(0, 0)
    assert rules.holds_back(4, 0.9)
    assert not rules.holds_back(5, 0.9)
    assert not rules.holds_back(4, 1.0)
    assert rules.better(0, 1.0) is None


def test_a_turn_counts_from_the_release(rules: PriorityRules) -> None:
    rules.saw_others([other(5)])
    rules.leave_turn(0, 0)
    rules.begin_turn(0.5)
    assert rules.holds_back(0, 1.4)
    assert rules.due() == 1.5


def test_there_is_a_turn_for_each_higher_priority_up_to_three(rules: PriorityRules) -> None:
    rules.saw_others([other(5), other(5, 2), other(9, 3)])
    rules.leave_turn(0, 0)
    assert rules.due() == 2.0
    rules.led()
    rules.saw_others([other(priority) for priority in range(1, 100)])
    rules.leave_turn(0, 0)
    assert rules.due() == 3.0


def test_one_that_was_passed_over_has_another_turn_after_a_session(rules: PriorityRules) -> None:
    rules.saw_others([other(5)])
    rules.leave_turn(0, 0)
    assert rules.better(0, 10.9) is None
    assert rules.better(0, 11.0) == other(5)


def test_a_vacancy_ends_when_one_leads_that_had_a_turn(rules: PriorityRules) -> None:
    rules.saw_others([other(5, 1, "a"), other(6, 2, "b")])
    rules.leave_turn(0, 0)
    rules.saw_leader("c")
    assert rules.better(0, 2) is None
    rules.saw_leader("a")
    assert rules.better(0, 2) == other(6, 2, "b")


def test_all_have_another_turn_after_a_term_of_this_client(rules: PriorityRules) -> None:
    rules.saw_others([other(5)])
    rules.leave_turn(0, 0)
    rules.led()
    assert not rules.holds_back(0, 0)
    assert rules.better(0, 0) == other(5)


def test_a_turn_of_a_new_one_is_left_and_the_former_one_stays_passed_over(
    rules: PriorityRules,
) -> None:
    rules.saw_others([other(5)])
    rules.leave_turn(0, 0)
    rules.saw_others([other(5), other(9, 2)])
    assert rules.better(0, 2) == other(9, 2)
    rules.leave_turn(0, 2)
    assert rules.due() == 3.0
    assert rules.better(0, 3) is None


def test_those_of_equal_priority_have_turns_in_the_order_of_their_records(
    rules: PriorityRules,
) -> None:
    rules.saw_others([other(5, 1), other(5, 2), other(5, 8), other(6, 1)])
    assert rules.turns_before(5, Version(7)) == 2
    assert rules.turns_before(5, None) == 0


@pytest.mark.parametrize("wrong", [-1, 101, True, 1.0, "1", None, [1]])
def test_a_priority_is_a_whole_number_from_0_to_100(wrong: Any) -> None:
    with pytest.raises(UsageError, match="whole number from 0 to 100"):
        check_priority(wrong)
    assert [check_priority(right) for right in (0, 1, 100)] == [0, 1, 100]


@pytest.mark.parametrize(
    "written", ["", ', "priority": "9"', ', "priority": 101', ', "priority": true']
)
def test_a_place_without_a_priority_has_the_lowest(written: str) -> None:
    place = decode_place(
        f'{{"candidate": "c", "host": "h", "pid": 1, "since": 0{written}}}'.encode()
    )
    assert place is not None
    assert place.priority == 0
    place = decode_place(encode_place("c", 100))
    assert place is not None
    assert place.priority == 100
