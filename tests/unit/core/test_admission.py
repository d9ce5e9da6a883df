"""Places of tasks that wait for the store: turns of both kinds, and relief while none ends."""

import pytest

from kip30.runtime.admission import Admission

MOST = 3


@pytest.fixture
def admission() -> Admission[str]:
    return Admission(MOST)


def test_a_number_of_tasks_has_places_and_the_others_queue_in_order(
    admission: Admission[str],
) -> None:
    assert [admission.admit(name, is_call=False) for name in "abcde"] == [True] * 3 + [False] * 2
    assert [admission.ended(is_call=False) for _ in range(5)] == ["d", "e", None, None, None]
    assert admission.running == 0


def test_calls_and_own_tasks_take_turns(admission: Admission[str]) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        admission.admit(name, is_call=False)
    for name in ("call 1", "call 2"):
        admission.admit(name, is_call=True)
    order = [admission.ended(is_call=False) for _ in range(3)]
    order += [admission.ended(is_call=False), admission.ended(is_call=True)]
    assert sorted(map(str, order[:2])) == ["call 1", "d"]
    assert sorted(map(str, order[2:4])) == ["call 2", "e"]
    assert order[4] == "f"


def test_calls_never_have_all_places(admission: Admission[str]) -> None:
    assert [admission.admit(name, is_call=True) for name in "abc"] == [True, True, False]
    assert admission.admit("own", is_call=False)
    assert admission.ended(is_call=False) is None
    assert admission.ended(is_call=True) == "c"


def test_without_reserved_places_calls_have_all() -> None:
    admission = Admission[str](MOST, reserved=0)
    assert [admission.admit(name, is_call=True) for name in "abcd"] == [True] * 3 + [False]


def test_if_none_ends_for_long_one_more_has_a_place(admission: Admission[str]) -> None:
    admission.limit(MOST, 10.0)
    for number in range(9):
        admission.admit(str(number), is_call=False)
    assert admission.stalls_at(100.0) == 110.0
    assert admission.relief(109.0) is None
    assert [admission.relief(now) for now in (110.0, 111.0, 120.0)] == ["3", None, "4"]
    assert [admission.relief(now) for now in (130.0, 140.0)] == ["5", None]  # twice as many
    assert admission.running == 2 * MOST
    # As many have places again as before the stall, once so many have ended.
    assert [admission.ended(is_call=False) for _ in range(4)] == [None] * 3 + ["6"]
    assert admission.stalls_at(150.0) == 160.0


def test_there_is_no_relief_while_tasks_end(admission: Admission[str]) -> None:
    admission.limit(MOST, 10.0)
    for number in range(9):
        admission.admit(str(number), is_call=False)
    assert admission.relief(100.0) is None
    assert admission.ended(is_call=False) == "3"
    assert admission.relief(111.0) is None
    assert admission.relief(121.0) == "4"


def test_calls_that_hang_are_relieved_although_own_tasks_end(admission: Admission[str]) -> None:
    admission.limit(MOST, 10.0)
    for name in "abcd":
        admission.admit(f"call {name}", is_call=True)
    admission.admit("own", is_call=False)
    assert admission.stalls_at(0.0) == 10.0
    for _ in range(3):  # as one that is woken now and then
        assert admission.ended(is_call=False) is None
        assert admission.admit("own", is_call=False)
    assert admission.relief(10.0) == "call c"
    assert admission.ended(is_call=True) is None
    assert admission.relief(20.0) is None
    assert admission.relief(30.0) == "call d"


def test_nothing_stalls_if_none_queues(admission: Admission[str]) -> None:
    admission.limit(MOST, 10.0)
    admission.admit("a", is_call=False)
    assert admission.stalls_at(100.0) == float("inf")
    assert admission.relief(1000.0) is None


def test_relief_does_not_give_calls_the_last_place(admission: Admission[str]) -> None:
    admission.limit(MOST, 10.0)
    for name in "abcdefgh":
        admission.admit(f"call {name}", is_call=True)
    assert admission.relief(0.0) is None
    relieved = [admission.relief(now) for now in (10.0, 20.0, 30.0, 40.0)]
    assert relieved == ["call c", "call d", "call e", None]
    # They may all wait for one of these.
    assert admission.admit("own 1", is_call=False)
    assert not admission.admit("own 2", is_call=False)
    assert admission.ended(is_call=False) == "own 2"
    assert admission.running == 2 * MOST
