"""The record of past terms."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import StoreError
from kip30.operations import began_at
from kip30.runtime.past_terms import (
    KEPT,
    NOT_NOTED,
    PastTerm,
    decode_past_terms,
    encode_past_terms,
    with_terms,
)

pytestmark = pytest.mark.small


def term(epoch: int, **others: Any) -> PastTerm:
    """Return a term that began at its epoch, and lasts."""
    return PastTerm(f"n{epoch}", epoch, "a", float(epoch))._replace(**others)


def damaged(**fields: Any) -> bytes:
    """Return a record with one term, some *fields* of which no leader would have written."""
    return json.dumps({"format": 1, "terms": [{**term(1)._asdict(), **fields}]}).encode()


def ended(epoch: int, until: float | None = None) -> PastTerm:
    return term(epoch, until=epoch + 0.5 if until is None else until, ended="resigned")


_terms = st.builds(
    PastTerm,
    st.text(max_size=9),
    st.integers(0, 2**63),
    st.text(max_size=9),
    st.floats(0, 4e9),
    st.none() | st.floats(0, 4e9),
    st.text(max_size=9),
)


@given(st.lists(_terms, max_size=KEPT))
def test_a_record_is_read_as_it_was_written(terms: list[PastTerm]) -> None:
    assert decode_past_terms("s", encode_past_terms(terms)) == tuple(terms)


def test_a_term_is_noted_once_and_its_end_later() -> None:
    assert with_terms((), [term(1)]) == (term(1),)
    assert with_terms([term(1)], [ended(1)]) == (ended(1),)
    assert with_terms([ended(1)], [ended(1)]) == (ended(1),)


def test_a_term_that_others_have_followed_has_ended() -> None:
    assert with_terms([term(1)], [term(3)]) == (term(1, until=3.0, ended=NOT_NOTED), term(3))


def test_an_end_that_is_noted_late_takes_the_place_of_a_guess() -> None:
    known = with_terms([term(1)], [term(3)])
    assert with_terms(known, [ended(1)]) == (ended(1), term(3))


def test_a_leader_that_writes_after_the_next_one_is_before_it() -> None:
    assert with_terms([ended(1), term(3)], [ended(2)]) == (ended(1), ended(2), term(3))


def test_a_leader_whose_clock_is_slow_ends_no_term_before_its_beginning() -> None:
    (first, _) = with_terms([term(1, since=9.0)], [term(2, since=3.0)])
    assert (first.since, first.until) == (9.0, 9.0)


def test_a_store_that_was_made_anew_goes_on_behind_copied_terms() -> None:
    copied = [ended(100), ended(101)]
    assert with_terms(copied, [term(1, since=500.0)])[-1] == term(1, since=500.0)


def test_the_record_keeps_the_last_terms() -> None:
    found = with_terms([ended(number) for number in range(1, KEPT + 1)], [term(KEPT + 1)])
    assert [one.epoch for one in found] == [*range(2, KEPT + 2)]


def test_the_beginning_of_a_term_that_lasts_is_known() -> None:
    terms = [ended(1), term(7, since=3.0)]
    assert began_at(terms, 7) == 3.0
    assert began_at(terms, 1) is None
    assert began_at(terms, 8) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 2, "terms": []}',
        b'{"format": 1, "terms": 7}',
        b'{"format": 1, "terms": [7]}',
        b'{"format": 1, "terms": [{}]}',
        damaged(since=math.nan),
        b'{"format": 1, "terms": {}}',
        damaged(epoch="7"),
        damaged(epoch=1.5),
        damaged(epoch=True),
        damaged(since=False),
        damaged(candidate=None),
        damaged(ended=["lost"]),
        b"[" * 100_000,
    ],
    ids=range(16),
)
def test_a_damaged_record_is_an_error(data: bytes) -> None:
    with pytest.raises(StoreError, match="past terms of 's' cannot be read"):
        decode_past_terms("s", data)
