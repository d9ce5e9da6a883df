from dataclasses import replace

import pytest

from kip30.driver.records import Version
from kip30.history import explanation
from kip30.history.explanation import Violation, beginning
from kip30.history.linearizability import check, check_key
from kip30.history.operations import Operation, Outcome
from kip30.history.storage_register import StorageRegister
from kip30.history.verdict import Verdict

from .histories import quiet_history, storage_history


def explained(rows: list[Operation]) -> Violation:
    violation = check_key("k", rows, StorageRegister()).violation
    assert violation is not None
    return violation


def with_stale_read(at: int) -> list[Operation]:
    """Return a history in which a read after place *at*, alone, answers the first value."""
    rows = storage_history(7, 200)
    begin = 10 * at + 40
    stale = replace(rows[1], process="reader", called_ns=begin, returned_ns=begin)
    return [*rows, stale]


def test_it_blames_the_row_that_breaks_it() -> None:
    for place in (20, 100, 180):
        assert explained(with_stale_read(place)).blamed.process == "reader"


def test_without_the_blamed_row_the_rest_has_an_order() -> None:
    rows = with_stale_read(100)
    blamed = explained(rows).blamed
    assert check([row for row in rows if row != blamed], StorageRegister()).verdict is Verdict.OK


def test_the_window_is_short_and_holds_the_blamed_row() -> None:
    violation = explained(with_stale_read(100))
    assert violation.blamed in violation.window
    assert len([row for row in violation.window if row.answered]) < 25


def test_it_reads_like_this() -> None:
    rows = [
        Operation(
            key="color", process="alice", op="put", args=("red",), called_ns=0,
            returned_ns=1_500_000, outcome=Outcome.OK, version=Version(1),
        ),
        Operation(
            key="color", process="bob", op="update", args=("green",), called_ns=2_000_000,
            returned_ns=3_000_000, outcome=Outcome.OK, version=Version(2),
        ),
        Operation(key="color", process="dan", op="update", args=("blue",), called_ns=2_500_000),
        Operation(
            key="color", process="carol", op="get", called_ns=4_000_000,
            returned_ns=5_000_000, outcome=Outcome.OK, result="red", version=Version(1),
        ),
    ]  # fmt: skip
    assert str(explained(rows)).splitlines() == [
        "key 'color': no order of its operations explains the marked one",
        "    bob: update('green') ok None at version 2, 0.000 to 1.000 ms",
        "    dan: update('blue') no answer, 0.500 to … ms",
        "  > carol: get() ok 'red' at version 1, 2.000 to 3.000 ms",
        "when all that had returned before it had happened, the state could only be",
        "    'green' at version 2",
    ]


@pytest.mark.parametrize("length", [1_000, 20_000])
def test_a_long_history_is_explained_as_exactly_as_a_short_one(length: int) -> None:
    rows = quiet_history(length)
    begin = 5 * length
    stale = replace(rows[1], process="reader", called_ns=begin, returned_ns=begin)
    violation = explained([*rows, stale])
    assert (violation.blamed.process, violation.is_first) == ("reader", True)
    assert len(violation.window) < 20
    assert violation.states


def test_the_explanation_reports_that_narrowing_down_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explanation, "_PATIENCE", 0)
    monkeypatch.setattr(explanation, "_BUDGET", 0)
    monkeypatch.setattr(explanation, "_BUDGET_PER_ROW", 0)
    violation = explained(with_stale_read(20))
    assert not violation.is_first
    assert "explains the marked one and all before it" in str(violation)
    assert "(not found in time)" in str(violation)


def test_the_report_carries_it() -> None:
    report = check(with_stale_read(50), StorageRegister())
    assert "violation: 1 keys judged" in str(report)
    assert "> reader: get()" in str(report)


def test_the_beginning_of_a_history_forgets_what_came_later() -> None:
    rows = storage_history(3, 40)
    cut = beginning(rows, 100)
    assert all(row.called_ns <= 100 for row in cut)
    assert all(row.ends_ns <= 100 for row in cut if row.answered)
    assert check(cut, StorageRegister()).verdict is Verdict.OK
