"""The verdict on the checkpoints of many deletions; it needs no store."""

from dataclasses import replace

import pytest

from benchmarks.deletions.checkpoint import Checkpoint, summary

FIRST = Checkpoint(
    cycles=0,
    leaves=0,
    cycles_per_second=0,
    leaves_per_second=0,
    put_delete_ms=(4.0, 4.0),
    join_leave_ms=(5.0, 4.0),
    list_ms=(1.0, 1.0),
    heard_after_seconds={"value": 0.5},
    tombstones_of_a_read={"records": 10},
    warnings=0,
    failures=[],
)
BUSY = replace(FIRST, cycles=100, put_delete_ms=(9.0, 8.0), heard_after_seconds={"value": 0.1})


def test_an_operation_that_all_places_slow_down_has_not_grown() -> None:
    result = summary([FIRST, BUSY], [])
    assert result["holds"]
    assert result["latency"]["put_delete_ms"]["last over first"] == pytest.approx(2.25)
    assert result["latency"]["put_delete_ms"]["growth"] == pytest.approx(1.125)
    assert result["heard_after_seconds"]["most"] == 0.5


@pytest.mark.parametrize(
    "last",
    [
        replace(BUSY, put_delete_ms=(16.0, 8.0)),
        replace(BUSY, join_leave_ms=(8.0, 4.0)),
        replace(BUSY, failures=["list of keys: not what is there"]),
    ],
)
def test_growth_and_failures_count(last: Checkpoint) -> None:
    assert not summary([FIRST, last], [])["holds"]


def test_a_run_that_ended_early_does_not_hold() -> None:
    result = summary([FIRST, BUSY], ["UnavailableError: no node answers"])
    assert not result["holds"]
    assert result["failures"] == ["UnavailableError: no node answers"]
