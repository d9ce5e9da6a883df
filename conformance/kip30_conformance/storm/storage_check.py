"""I3 and I4: the values that were written, which must be kept."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kip30.driver.records import Version
from kip30.history.linearizability import KeyReport, check_key
from kip30.history.operations import Operation
from kip30.history.storage_register import StorageRegister
from kip30.history.vacuity import missing_evidence
from kip30.history.verdict import Verdict
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.names import is_register
from kip30_conformance.storm.storm_history import StormRecord

_WRITES = ("put", "update", "set", "compare_and_set")
_SHOWN = 3

Held = tuple[str, Version] | None


def nothing_lost(record: StormRecord) -> Finding:
    """Judge I3 by the final value of each key."""
    final: Mapping[str, Held] = record.final.values if record.final else {}
    keys = _by_key(record.operations)
    newest = {key: write for key, rows in keys.items() if (write := _newest(rows)) is not None}
    lost = [
        complaint
        for key, write in newest.items()
        if key in final and (complaint := _lost(write, final[key], keys[key]))
    ]
    unread = [key for key in newest if key not in final]
    return Finding(
        "I3",
        "no acknowledged write is lost",
        lost,
        f"{len(newest) - len(unread)} keys read in the end, "
        f"{sum(map(_was_written, record.operations))} acknowledged writes",
        f"{len(unread)} keys could not be read in the end" if unread or not newest else "",
    )


def linearizable(record: StormRecord) -> Finding:
    """Judge I4 key by key; one that cannot be decided within the budget is no pass."""
    rows = [row for row in record.operations if is_register(row.key)]
    model = StorageRegister()
    reports = [check_key(key, ones, model) for key, ones in _by_key(rows).items()]
    wrong = [report for report in reports if report.verdict is Verdict.VIOLATION]
    undecided = [report.key for report in reports if report.verdict is Verdict.UNKNOWN]
    unproven = [*missing_evidence(rows, model), *(f"{key} is undecided" for key in undecided)]
    return Finding(
        "I4",
        "the history of every key is linearizable",
        [str(report.violation) for report in wrong[:_SHOWN]],
        _weight(reports, rows),
        "; ".join(unproven),
    )


def _weight(reports: Sequence[KeyReport], rows: Sequence[Operation]) -> str:
    hardest = max((report.explored for report in reports), default=0)
    unknown = sum(not row.answered for row in rows)
    return (
        f"{len(reports)} keys, {len(rows)} operations, {unknown} without an answer; "
        f"{hardest} configurations for the hardest key"
    )


def _by_key(rows: Sequence[Operation]) -> Mapping[str, list[Operation]]:
    keys: defaultdict[str, list[Operation]] = defaultdict(list)
    for row in rows:
        keys[row.key].append(row)
    return keys


def _was_written(row: Operation) -> bool:
    return row.op in _WRITES and row.acknowledged and row.version is not None


def _version(row: Operation) -> Version:
    assert row.version is not None
    return row.version


def _newest(rows: Sequence[Operation]) -> Operation | None:
    """Return the acknowledged write with the greatest version."""
    return max(filter(_was_written, rows), key=_version, default=None)


def _lost(write: Operation, held: Held, rows: Sequence[Operation]) -> str:
    """Return why *held* shows that *write*, or a later one, is lost; "" if it does not."""
    if held is None:
        return (
            ""
            if _may_be_deleted(write, rows)
            else _described(write, "is gone, and no client deleted it")
        )
    value, version = held
    if version < _version(write):
        return _described(write, f"is gone: there is {value!r} at {version}")
    if version == write.version:
        return "" if value == write.args[-1] else _described(write, f"holds {value!r}")
    return (
        ""
        if value in _unanswered(rows)
        else _described(write, f"gave way to {value!r}, which no client wrote")
    )


def _described(write: Operation, what: str) -> str:
    return f"{write.key}: {write.args[-1]!r} at {write.version}, acknowledged, {what}"


def _may_be_deleted(write: Operation, rows: Sequence[Operation]) -> bool:
    """Return whether a deletion that was not refused ended after *write* began."""
    return any(
        row.op == "delete" and not row.refused and row.ends_ns > write.called_ns for row in rows
    )


def _unanswered(rows: Sequence[Operation]) -> Iterator[str]:
    return (row.args[-1] for row in rows if row.op in _WRITES and not row.answered)
