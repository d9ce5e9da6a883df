"""Calls that end too late, or never, are recorded by their own limits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30_conformance.polling import eventually
from kip30_conformance.storm.call_log import CallTimer
from kip30_conformance.storm.process_journal import ProcessJournal, Row, read_journals

LIMIT = 0.02
LONG_LIMIT = 600.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "journals").mkdir()
    return tmp_path / "journals"


@pytest.fixture
def calls(folder: Path) -> Iterator[CallTimer]:
    with ProcessJournal(folder, "c0") as journal, CallTimer(journal, LIMIT) as timer:
        yield timer


def rows(folder: Path, what: str) -> list[Row]:
    return [row for row in read_journals(folder)["c0"] if row["what"] == what]


def look(folder: Path, calls: CallTimer) -> list[Row]:
    calls.look()
    return rows(folder, "stuck")


def fail() -> None:
    raise RuntimeError("planted")


def test_a_call_that_does_not_end_is_recorded_once(folder: Path, calls: CallTimer) -> None:
    with calls.call("put"):
        eventually(lambda: look(folder, calls))
        calls.look()
    assert [row["kind"] for row in rows(folder, "stuck")] == ["put"]


def test_a_call_with_a_longer_limit_may_last_longer(folder: Path, calls: CallTimer) -> None:
    with calls.call("direct", limit_seconds=LONG_LIMIT), calls.call("put"):
        eventually(lambda: look(folder, calls))
    assert [row["kind"] for row in rows(folder, "stuck")] == ["put"]
    assert [row["kind"] for row in rows(folder, "slow")] == ["put"]


def test_an_error_of_another_kind_is_recorded(folder: Path, calls: CallTimer) -> None:
    with calls.call("put"):
        fail()
    assert "planted" in rows(folder, "broken")[0]["text"]
    assert calls.counted()["ended"] == {"put": {"broken": 1}}
