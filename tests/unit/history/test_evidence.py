"""X06: a history in which nothing happened is no evidence."""

from dataclasses import replace

import pytest

from kip30.history.operations import Operation, Outcome
from kip30.history.storage_register import StorageRegister
from kip30.history.vacuity import missing_evidence

from .histories import storage_history

pytestmark = pytest.mark.case("X06")

MODEL = StorageRegister()


def test_a_busy_history_lacks_nothing() -> None:
    assert missing_evidence(storage_history(1, 50), MODEL, faults=1) == ()


def test_an_empty_history_lacks_everything() -> None:
    assert missing_evidence([], MODEL, faults=0) == (
        "no write was acknowledged",
        "no two operations on a key overlapped",
        "no fault was seen to bite",
    )


def test_refused_and_lost_writes_are_no_writes() -> None:
    rows = [
        replace(row, outcome=Outcome.FAIL, result="UnavailableError", version=None)
        for row in storage_history(1, 50)
        if row.answered and row.op != "get"
    ]
    assert missing_evidence(rows, MODEL) == ("no write was acknowledged",)


def test_operations_on_different_keys_do_not_overlap() -> None:
    rows = [
        Operation(
            key=key, process="p", op="put", args=("a",), called_ns=0, returned_ns=1,
            outcome=Outcome.OK,
        )
        for key in "ab"
    ]  # fmt: skip
    assert missing_evidence(rows, MODEL) == ("no two operations on a key overlapped",)
