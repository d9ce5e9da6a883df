from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kip30.driver.records import Version
from kip30.history.operations import Operation, Outcome
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.leadership_check import fenced_writes, one_holder, rising_epochs
from kip30_conformance.storm.names import FENCED_KEY
from kip30_conformance.storm.storm_history import InjectedFault, StormRecord, Term, Window
from kip30_conformance.storm.timing import Timing

from .records import fenced, record, refusal, row, write


def read(called: float, at: float, epoch: int) -> dict[str, Any]:
    return row("read leader", at, called=called, seen=["c0", epoch])


def reads(*rows: dict[str, Any]) -> StormRecord:
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


LOOK_UP = Timing().look_up
OPERATION = Timing().operation


def ended_ahead(  # noqa: PLR0913  one for each of its times
    last: float,
    *,
    called: float = 4.9,
    observe_seconds: float = 0.5,
    first: float = 0.0,
    windows: Sequence[Window] = (),
    error: str = "",
) -> StormRecord:
    """The first term is ended in the store at the second 5, and the next one begins right then."""
    ended = row("expired", 5.0, called=called, observe_seconds=observe_seconds, error=error)
    terms = [Term(1, first, last, "c0.1"), Term(2, 5.0, 5.1, "c1.1")]
    return record(terms=terms, journals={"c0.1": [ended], "c1.1": []}, windows=windows)


def disturbed(kind: str, late: float = OPERATION - 0.1) -> StormRecord:
    """The holder hears of the end *late*, while a fault of *kind* is under way."""
    struck = InjectedFault(kind, "c0.1", 1.0, "seen")
    window = Window(4.0, 6.0, 9.0, 12.0, (struck,))
    return ended_ahead(5.5 + late, windows=[window])


def unanswered(last: float, *, error: str = "OutcomeUnknownError") -> StormRecord:
    """The store may do the deletion when its servers run again, at the second 8."""
    struck = InjectedFault("all stopped", "node 0", 4.0, "seen")
    return ended_ahead(last, windows=[Window(4.0, 8.0, 12.0, 15.0, (struck,))], error=error)


@pytest.mark.parametrize(
    "excused",
    [
        unanswered(8.5 + OPERATION - 0.1),
        ended_ahead(5.5 + LOOK_UP - 0.1),
        ended_ahead(5.0 + LOOK_UP - 0.1, observe_seconds=0.0),
        disturbed("link slow"),
    ],
    ids=[
        "as servers that had stopped",
        "as observers",
        "as those of a store that notifies at once",
        "while a link was slow",
    ],
)
def test_an_end_ahead_of_time_is_seen_as_late_as_observers_see_it(excused: StormRecord) -> None:
    assert one_holder(excused).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "late",
    [
        ended_ahead(5.5 + LOOK_UP + 0.1),
        unanswered(8.5 + OPERATION + 0.1),
        unanswered(8.5 + OPERATION - 0.1, error=""),
        disturbed("session expired", LOOK_UP + 0.1),  # the look-up is scaled by the machine
        ended_ahead(6.0 + LOOK_UP + 0.1, observe_seconds=60.0),
        ended_ahead(5.0 + LOOK_UP + 0.1, observe_seconds=0.0),
        ended_ahead(5.4, called=5.05),
        ended_ahead(5.4, first=4.95),
    ],
    ids=[
        "later than observers",
        "later than servers that had stopped",
        "although it was acknowledged",
        "without another fault",
        "later than any store may declare",
        "later than those of a store that notifies at once",
        "although it had not ended",
        "although it began after the deletion",
    ],
)
def test_two_valid_at_once_although_one_was_ended_ahead_of_time(late: StormRecord) -> None:
    assert one_holder(late).conclusion is Conclusion.VIOLATION


def test_an_excused_term_hides_no_others() -> None:
    excused = ended_ahead(5.4)
    others = [Term(3, 5.1, 5.35, "c1.1"), Term(4, 5.2, 5.3, "c2.1")]
    found = one_holder(replace(excused, terms=[*excused.terms, *others]))
    assert len(found.violations) == 1
    assert found.violations[0].endswith("both valid for 0.100 s")


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


def test_a_lost_write_of_an_old_epoch_that_a_read_shows() -> None:
    lost = write(FENCED_KEY, "1 c0.1 fenced late", None)
    shown = Operation(
        key=FENCED_KEY,
        process="storm",
        op="get",
        called_ns=9 * 10**9,
        returned_ns=10 * 10**9,
        outcome=Outcome.OK,
        result="1 c0.1 fenced late",
        version=Version(2),
    )
    operations = [fenced(3, 1), lost, shown, refusal(FENCED_KEY, "FencedError")]
    (broken,) = fenced_writes(record(operations=operations)).violations
    assert broken == "epoch 1 accepted after 3: version 2 after 1"


def test_the_first_value_is_no_fenced_write() -> None:
    first = write(FENCED_KEY, "0 first", 1, op="put")
    assert "no fenced write was accepted" in fenced_writes(record(operations=[first])).missing


def test_a_fence_that_refused_no_write_proves_nothing() -> None:
    found = fenced_writes(record(operations=[fenced(1, 1)]))
    assert (found.conclusion, found.missing) == (Conclusion.NO_EVIDENCE, "none was refused")
