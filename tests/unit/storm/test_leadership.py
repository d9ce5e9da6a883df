from typing import Any

import pytest

from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.leadership import fenced_writes, one_holder, rising_epochs
from kip30_conformance.storm.names import FENCED_KEY
from kip30_conformance.storm.record import Record, Term

from .records import fenced, record, refusal, row


def read(called: float, at: float, epoch: int) -> dict[str, Any]:
    return row("read leader", at, called=called, seen=["c0", epoch])


def reads(*rows: dict[str, Any]) -> Record:
    return record(journals={"c0.1": rows})


def test_one_holder_at_a_time() -> None:
    assert one_holder(record()).conclusion is Conclusion.OK


def test_a_term_that_touches_the_next_is_sound() -> None:
    terms = [Term(1, 0.0, 5.0, "c0.1"), Term(2, 5.0, 6.0, "c1.1")]
    assert one_holder(record(terms=terms)).conclusion is Conclusion.OK


def test_two_holders_of_one_epoch() -> None:
    terms = [Term(1, 0.0, 5.0, "c0.1"), Term(1, 6.0, 9.0, "c1.1")]
    assert "epoch 1 held by c0.1 and by c1.1" in one_holder(record(terms=terms)).violations


def test_an_epoch_too_short_to_be_found_valid_is_shared_all_the_same() -> None:
    journals = {"c0.1": [], "c1.1": [row("elected", epoch=1)]}
    found = one_holder(record(journals=journals))
    assert found.violations == ["epoch 1 held by c0.1 and by c1.1"]


def test_two_valid_at_once() -> None:
    terms = [Term(1, 0.0, 7.0, "c0.1"), Term(2, 6.0, 9.0, "c1.1")]
    assert "both valid for 1.000 s" in one_holder(record(terms=terms)).violations[0]


def ended_ahead(last: float, *, at: float = 5.0, observe_seconds: float = 0.5) -> Record:
    """The first term is ended in the store at the second *at*, and the next one begins at 6."""
    ended = row("expired", at, called=at - 0.1, observe_seconds=observe_seconds)
    terms = [Term(1, 0.0, last, "c0.1"), Term(2, 6.0, 9.0, "c1.1")]
    return record(terms=terms, journals={"c0.1": [ended], "c1.1": []})


def test_who_is_not_told_of_an_end_ahead_of_time_hears_of_it_as_observers_do() -> None:
    assert one_holder(ended_ahead(7.4)).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "late",
    [ended_ahead(7.6), ended_ahead(7.4, observe_seconds=0.0), ended_ahead(7.4, at=6.2)],
    ids=["later than observers", "although the store tells", "although it had not ended"],
)
def test_two_valid_at_once_although_one_was_ended_ahead_of_time(late: Record) -> None:
    assert one_holder(late).conclusion is Conclusion.VIOLATION


def test_a_long_term_overlaps_more_than_its_neighbour() -> None:
    terms = [Term(1, 0.0, 9.0, "c0.1"), Term(2, 1.0, 2.0, "c0.1"), Term(3, 3.0, 4.0, "c1.1")]
    assert one_holder(record(terms=terms)).conclusion is Conclusion.VIOLATION


def test_a_single_term_proves_nothing() -> None:
    terms = [Term(1, 0.0, 7.0, "c0.1")]
    assert one_holder(record(terms=terms)).conclusion is Conclusion.NO_EVIDENCE
    assert rising_epochs(record(terms=terms)).conclusion is Conclusion.NO_EVIDENCE


def test_epochs_rise() -> None:
    sound = reads(read(0, 1, 1), read(0.5, 3, 2), read(2, 4, 1), read(5, 6, 2))
    assert rising_epochs(sound).conclusion is Conclusion.OK


def test_a_later_term_with_a_lower_epoch() -> None:
    terms = [Term(2, 0.0, 5.0, "c0.1"), Term(1, 6.0, 9.0, "c1.1")]
    assert "was over before" in rising_epochs(record(terms=terms)).violations[0]


def test_a_later_read_of_a_lower_epoch() -> None:
    found = rising_epochs(reads(read(0, 1, 2), read(2, 3, 1)))
    assert found.violations == ["epoch 1 read at 2.000 although 2 had been read before"]


def test_fenced_writes_in_order() -> None:
    operations = [fenced(1, 1), fenced(1, 2), fenced(3, 3), refusal(FENCED_KEY, "FencedError")]
    assert fenced_writes(record(operations=operations)).conclusion is Conclusion.OK


def test_a_fence_that_let_an_old_epoch_through() -> None:
    operations = [fenced(3, 1), fenced(1, 2), refusal(FENCED_KEY, "FencedError")]
    assert len(fenced_writes(record(operations=operations)).violations) == 1


def test_a_fence_that_refused_nobody_proves_nothing() -> None:
    found = fenced_writes(record(operations=[fenced(1, 1)]))
    assert (found.conclusion, found.missing) == (Conclusion.NO_EVIDENCE, "none was refused")
