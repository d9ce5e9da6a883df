"""The rule of `comparison` for tables of Arrow that one task holds, without a plan of Spark."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from kip30.pipeline.compare.comparison import (
    COLUMNS,
    DIFFERS,
    LEFT,
    ONLY_LEFT,
    ONLY_RIGHT,
    RIGHT,
    SIDES,
    UNSETTLED,
    begins_with_any,
    outermost,
)

_MEASURES = {"version": "version", "bytes": "value_bytes", "digest": "digest"}
"""Of the columns of a side: those of the differences, and those of the tables."""

_VERSION = pa.struct([("major", pa.int64()), ("minor", pa.int64())])


def compared(left: pa.Table, right: pa.Table, *, raw: Collection[str]) -> pa.Table:
    """Return the keys that have a value on one side alone, or not the same one on both.

    Args:
        left: The columns `comparison.compared_columns`, without values. Each key has one record at
            most.
        right: The same.
        raw: The sides that are raw.

    Returns:
        The columns `COLUMNS`. A key that no side has as a record is not among them.
    """
    sides = {LEFT: _Side.of(left), RIGHT: _Side.of(right)}
    found = list(_differences(sides, raw))
    names = pa.array([one.kind for one in found], pa.string())
    keys = pa.array([one.key for one in found], pa.binary()).cast(left.column(0).type)
    columns: dict[str, Any] = {"key": keys, "kind": names}
    for side in SIDES:
        rows = pa.array([one.rows[side] for one in found], pa.int64())
        for name, measure in _MEASURES.items():
            columns[f"{side}_{name}"] = sides[side].table[measure].take(rows)
        # Where a side has no record, neither part is there.
        columns[f"{side}_version"] = columns[f"{side}_version"].cast(_VERSION)
    return pa.table({name: columns[name] for name in COLUMNS})


class _Difference(NamedTuple):
    """A key, and the number of its row on each side, None where that has no record."""

    key: bytes
    kind: str
    rows: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side.

    Attributes:
        table: Its rows.
        records: The number of the row of each record, by its key.
        refused: The keys whose place a rejected row has.
        hidden: The prefixes of the keys that rejected rows hide.
        values: What is compared of each row.
        moving: Whether each row was changed after the position.
    """

    table: pa.Table
    records: Mapping[bytes, int]
    refused: Collection[bytes]
    hidden: Sequence[bytes]
    values: Sequence[tuple[int, int]]
    moving: Sequence[bool]

    @classmethod
    def of(cls, table: pa.Table) -> "_Side":
        keys, reasons = _values(table.column(0).cast(pa.binary())), _values(table["rejected"])
        places, prefixes = _values(table["record"]), _values(table["prefix"])
        sizes, hashes = _values(table["value_bytes"]), _values(table["digest"])
        rejected = [number for number, reason in enumerate(reasons) if reason is not None]
        return cls(
            table=table,
            records={
                key: number
                for number, (key, reason) in enumerate(zip(keys, reasons, strict=True))
                if reason is None
            },
            refused={places[number] for number in rejected},
            hidden=outermost({*prefixes} - {None}),
            values=list(zip(sizes, hashes, strict=True)),
            moving=_values(table["moving"]),
        )

    def is_unreadable(self, key: bytes) -> bool:
        """Return whether *key*, which is no record here, may be here all the same."""
        return key in self.refused or begins_with_any(key, self.hidden)

    def is_moving(self, row: int | None) -> bool:
        """Return whether there is a record in *row*, and was changed after the position."""
        return row is not None and self.moving[row]


def _differences(sides: Mapping[str, _Side], raw: Collection[str]) -> Iterator[_Difference]:
    left, right = sides[LEFT], sides[RIGHT]
    for key in {**left.records, **right.records}:
        rows = {side: sides[side].records.get(key) for side in SIDES}
        kind = _kind(key, left, right)
        if kind is not None and any(sides[side].is_moving(rows[side]) for side in raw):
            kind = UNSETTLED
        if kind is not None:
            yield _Difference(key, kind, rows)


def _kind(key: bytes, left: _Side, right: _Side) -> str | None:
    here, there = left.records.get(key), right.records.get(key)
    if there is None:
        return UNSETTLED if right.is_unreadable(key) else ONLY_LEFT
    if here is None:
        return UNSETTLED if left.is_unreadable(key) else ONLY_RIGHT
    return None if left.values[here] == right.values[there] else DIFFERS


def _values(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found
