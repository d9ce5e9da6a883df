"""I13."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.generation_check import one_assignment
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord

from .records import record, row


def share(member: str, generation: int, *items: int) -> Row:
    return row("share", member=member, generation=generation, items=list(items))


def read(called: float, at: float, generation: int, shares: Mapping[str, Sequence[int]]) -> Row:
    return row("read shares", at, called=called, seen=[generation, dict(shares)])


def judged(*rows: Any, others: Sequence[Row] = ()) -> StormRecord:
    return record(journals={"c0.1": rows, "c1.1": others})


FIRST = {"a": [1, 2], "b": []}
SECOND = {"a": [1], "b": [2]}
SOUND = [
    share("a", 1, 1, 2),
    read(0.0, 2.0, 1, FIRST),
    share("a", 2, 1),
    read(2.0, 3.0, 2, SECOND),
    read(2.5, 3.5, 1, FIRST),
    row("read shares", 9.0, called=8.0, seen=None),
]


def test_one_assignment() -> None:
    found = one_assignment(judged(*SOUND, others=[share("b", 1), share("b", 2, 2)]))
    assert (found.conclusion, found.violations) == (Conclusion.OK, [])
    assert found.seen == "2 generations, 4 shares taken up, 3 reads"


@pytest.mark.parametrize("generation", [1, 2])
def test_a_member_that_goes_back(generation: int) -> None:
    items = [1, 2] if generation == 1 else [1]
    found = one_assignment(judged(*SOUND, share("a", generation, *items)))
    assert found.violations == [f"a took generation {generation} up after 2"]


def test_a_share_that_was_lost_at_its_deadline_is_taken_up_again() -> None:
    lost = row("share lost", member="a", generation=2, items=[])
    found = one_assignment(judged(*SOUND, lost, share("a", 2, 1)))
    assert found.violations == []
    found = one_assignment(judged(*SOUND, lost, share("a", 2, 1), share("a", 2, 1)))
    assert found.violations == ["a took generation 2 up after 2"]
    found = one_assignment(judged(*SOUND, lost, share("a", 1, 1, 2)))
    assert found.violations == ["a took generation 1 up after 2"]


def test_a_read_that_goes_back() -> None:
    """The read of generation 2 returned at the second 3."""
    found = one_assignment(judged(*SOUND, read(3.0, 4.0, 1, FIRST)))
    assert found.violations == []
    found = one_assignment(judged(*SOUND, read(3.001, 4.0, 1, FIRST)))
    assert found.violations == ["generation 1 read at 3.001 although 2 had been read before"]


def test_two_shares_of_one_member() -> None:
    found = one_assignment(judged(*SOUND, read(3.0, 4.0, 2, {"a": [], "b": [2]})))
    assert found.violations == ["generation 2 has several shares for a: [] and [1]"]


def test_a_share_that_was_taken_up_is_the_one_that_is_read() -> None:
    found = one_assignment(judged(*SOUND, others=[share("b", 2)]))
    assert found.violations == ["generation 2 has several shares for b: [] and [2]"]


def test_one_item_given_to_two() -> None:
    found = one_assignment(judged(*SOUND, share("a", 3, 1, 2), others=[share("b", 3, 2)]))
    assert found.violations == ["generation 3 gives [2] to a and to b"]


def test_a_generation_with_other_members() -> None:
    found = one_assignment(judged(*SOUND, read(3.0, 4.0, 2, {"a": [1]})))
    assert found.violations == ["generation 2 was read with other members than before"]


def test_a_share_for_a_member_without_one() -> None:
    found = one_assignment(judged(*SOUND, others=[share("c", 2)]))
    assert found.violations == ["c took a share of generation 2 up, which has none for it"]


def test_a_single_generation_proves_nothing() -> None:
    assert one_assignment(judged(*SOUND[:2])).conclusion is Conclusion.NO_EVIDENCE
    assert one_assignment(judged()).conclusion is Conclusion.NO_EVIDENCE
