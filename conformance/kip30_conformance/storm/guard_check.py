"""I12: the outcomes of the guarded writes of the members that divide items."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from kip30.driver.records import Version
from kip30.history.operations import Operation
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.names import is_guarded
from kip30_conformance.storm.storm_history import StormRecord

_SHOWN = 20


class _Applied(NamedTuple):
    """A guarded write that was certainly applied, and the generation that its share is from."""

    version: Version
    value: str

    @property
    def since(self) -> int:
        return int(self.value.split()[0])

    @property
    def member(self) -> str:
        return self.value.split()[1]


def guarded_writes(record: StormRecord) -> Finding:
    """Judge I12 by the writes that were acknowledged or read, in the order of their versions.

    The generation in a value is read while the member cannot give the item up, so a write of a
    later share of the item has a greater one.
    """
    keys = _by_key(record)
    applied = {key: _applied(key, rows, record) for key, rows in keys.items()}
    wrong = [
        complaint
        for key, rows in keys.items()
        for complaint in (*_lost(key, rows, applied[key]), *_late(key, applied[key]))
    ]
    operations = [row for rows in keys.values() for row in rows if row.op == "set"]
    accepted = sum(row.acknowledged for row in operations)
    refused = sum(row.result == "IllegalGenerationError" for row in operations)
    moved = sum(len({write.member for write in writes}) > 1 for writes in applied.values())
    unseen = {"no item with a guarded write ever moved": not moved, "none was refused": not refused}
    return Finding(
        "I12",
        "guarded writes are kept, and none is applied after one of a later share",
        wrong[:_SHOWN],
        f"{accepted} accepted, {refused} refused; {moved} items written by several members",
        "; ".join(reason for reason, holds in unseen.items() if holds),
    )


def _by_key(record: StormRecord) -> Mapping[str, Sequence[Operation]]:
    keys: defaultdict[str, list[Operation]] = defaultdict(list)
    for row in record.operations:
        if is_guarded(row.key):
            keys[row.key].append(row)
    return keys


def _applied(key: str, rows: Sequence[Operation], record: StormRecord) -> list[_Applied]:
    """Return all values that *key* certainly had, in their order; some versions may have two."""
    found = {
        _Applied(row.version, row.args[-1] if row.op == "set" else row.result)
        for row in rows
        if row.acknowledged and row.version is not None
    }
    final = record.final.values.get(key) if record.final else None
    if final is not None:
        found.add(_Applied(final[1], final[0]))
    return sorted(found)


def _lost(key: str, rows: Sequence[Operation], applied: Sequence[_Applied]) -> Iterator[str]:
    """Yield each version with two values, and each call that found an older one than was known."""
    for one, other in pairwise(applied):
        if one.version == other.version:
            yield f"{key}: {one.value!r} and {other.value!r} at {one.version}"
    answered = [row for row in rows if row.acknowledged and row.returned_ns is not None]
    returns = sorted(answered, key=lambda row: row.ends_ns)
    over, newest = 0, None
    for row in sorted(answered, key=lambda row: row.called_ns):
        while returns[over].ends_ns < row.called_ns:
            version = returns[over].version
            if version is not None and (newest is None or version > newest):
                newest = version
            over += 1
        if newest is not None and (row.version is None or _is_older(row, newest)):
            yield f"{key}: {row.op} of {row.process} met {row.version} although {newest} was known"


def _is_older(row: Operation, newest: Version) -> bool:
    assert row.version is not None
    return row.version <= newest if row.op == "set" else row.version < newest


def _late(key: str, applied: Sequence[_Applied]) -> Iterator[str]:
    """Yield each write of a share that had ended when a later share had been written for."""
    newest: _Applied | None = None
    for write in applied:
        if newest is not None and _goes_back(newest, write):
            yield (
                f"{key}: {write.value!r} at {write.version} was applied after {newest.value!r} "
                f"at {newest.version}"
            )
        if newest is None or write.since >= newest.since:
            newest = write


def _goes_back(before: _Applied, write: _Applied) -> bool:
    """Return whether *write* is of an older share, or of another member's of the generation."""
    is_anothers = write.member != before.member
    return write.since < before.since or (is_anothers and write.since == before.since)
