"""X03 and X04: changes that mean nothing keep a verdict, and one lie turns it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kip30.driver.records import Version
from kip30.history.linearizability import check
from kip30.history.operations import Operation, Outcome
from kip30.history.storage_register import StorageRegister
from kip30.history.verdict import Verdict

from .histories import storage_history

Rows = list[Operation]
SEEDS = range(6)


def verdict(rows: Sequence[Operation]) -> Verdict:
    return check(rows, StorageRegister()).verdict


def first_value_again(rows: Rows) -> Rows:
    """Let the last read return the first value, long after it was overwritten."""
    stale = replace(rows[-1], result=rows[1].result, version=rows[1].version)
    return [*rows[:-1], stale]


def refused(row: Operation, error: str) -> Operation:
    """Return an update right after *row* that was refused with *error*."""
    at = row.called_ns + 10
    late = replace(row, op="update", args=("late",), called_ns=at, returned_ns=at)
    return replace(late, outcome=Outcome.FAIL, result=error, version=None)


def renamed_values(rows: Rows) -> Rows:
    def new(value: object) -> object:
        return f"another {value}" if str(value).startswith(("first", "last", "v")) else value

    return [replace(row, args=tuple(map(new, row.args)), result=new(row.result)) for row in rows]


def with_other_times(rows: Rows, change: Callable[[int], int]) -> Rows:
    return [
        replace(
            row,
            called_ns=change(row.called_ns),
            returned_ns=None if row.returned_ns is None else change(row.returned_ns),
        )
        for row in rows
    ]


CHANGES: dict[str, Callable[[Rows], Rows]] = {
    "other key": lambda rows: [replace(row, key="another") for row in rows],
    "other processes": lambda rows: [replace(row, process="only one") for row in rows],
    "other values": renamed_values,
    "later": lambda rows: with_other_times(rows, lambda time: time + 10**15),
    "slower": lambda rows: with_other_times(rows, lambda time: time * 1000),
    "other order of rows": lambda rows: rows[::-1],
    "with another key that is fine": lambda rows: [
        *rows, *(replace(row, key="fine") for row in storage_history(99, 60)),
    ],
}  # fmt: skip


HISTORIES: dict[str, Callable[[int], Rows]] = {
    "unique values": lambda seed: storage_history(seed, 60),
    "few values": lambda seed: storage_history(seed, 60, unique=False),
    "no versions": lambda seed: [replace(row, version=None) for row in storage_history(seed, 60)],
    "long": lambda seed: storage_history(seed, 200),
}

LIES: dict[str, Callable[[Rows], Rows]] = {
    "a stale read": first_value_again,
    "a write lost though acknowledged": lambda rows: rows[1:],
    "a read of nothing": lambda rows: [*rows[:-1], replace(rows[-1], result=None, version=None)],
    "a refusal without reason": lambda rows: [*rows, refused(rows[-1], "KeyMissingError")],
    "two winners": lambda rows: [*rows, replace(rows[-2], args=("two",), version=Version(10**6))],
}


@pytest.mark.case("X03")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_a_change_that_means_nothing_keeps_the_verdict(
    change: Callable[[Rows], Rows], history: Callable[[int], Rows]
) -> None:
    for seed in SEEDS:
        fine = history(seed)
        broken = first_value_again(fine)
        assert verdict(change(fine)) is verdict(fine) is Verdict.OK
        assert verdict(change(broken)) is verdict(broken) is Verdict.VIOLATION


@pytest.mark.case("X04")
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_one_lie_turns_the_verdict(
    history: Callable[[int], Rows], lie: Callable[[Rows], Rows]
) -> None:
    for seed in SEEDS:
        fine = history(seed)
        assert verdict(fine) is Verdict.OK
        assert verdict(lie(fine)) is Verdict.VIOLATION
