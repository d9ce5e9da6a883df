"""The two forms of the rule of comparison do the same, on random sides."""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kip30.driver.scanning import Layout
from kip30.pipeline.compare import frame_comparison, table_comparison
from kip30.pipeline.compare.comparison import COLUMNS, KINDS, SIDES, UNSETTLED, compared_columns
from kip30.pipeline.run.scan_files import MEASURES, digests
from kip30.pipeline.spark.schemas import arrow_schema

KEYS = [b"a", b"a/", b"a/b", b"a/b/c", b"b", b"\xc3\xa9"]
RAW_KEYS = [*KEYS, b"", b"\xff", b"a\x00"]
VALUES = [b"", b"0", b"1", b"00"]
CASES = 200


class Record(NamedTuple):
    """A record of a side."""

    value: bytes | None
    major: int
    minor: int
    moving: bool


NOTHING = Record(b"", 0, 0, moving=False)


class Refused(NamedTuple):
    """A rejected row of a side."""

    record: bytes | None
    prefix: bytes | None


Side = tuple[dict[bytes, Record], list[Refused]]


def side(random: Random, *, is_raw: bool) -> Side:
    keys = RAW_KEYS if is_raw else KEYS
    values = [*VALUES, None] if is_raw else VALUES
    records = {
        key: Record(
            random.choice(values), random.randrange(3), random.randrange(2**62), _is(random, 0.2)
        )
        for key in random.sample(keys, random.randrange(len(keys)))
    }
    # Few sides reject anything, or all that is missing would be unsettled.
    number = random.randrange(1, 4) if _is(random, 0.3) else 0
    names = [None, None, *keys]
    return records, [Refused(random.choice(names), random.choice(names)) for _ in range(number)]


def _is(random: Random, chance: float) -> bool:
    return random.random() < chance


def table_of(cases: Sequence[Side], *, is_raw: bool) -> pa.Table:
    """Return *cases* as the table of one side, the keys of each case below a number."""
    rows: list[dict[str, Any]] = []
    for number, (records, refused) in enumerate(cases):
        case = b"%d:" % number
        for key, one in records.items():
            rows.append(_row(case + key, one.value, one, (None, None, None)))
        for place, hidden in enumerate(refused):
            names = (None if name is None else case + name for name in hidden)
            rows.append(_row(b"/%d/%d" % (number, place), b"", NOTHING, ("why", *names)))
    keys, values = [row["key"] for row in rows], [row.pop("value") for row in rows]
    for row, value, digest in zip(rows, values, digests(keys, values, is_raw=is_raw), strict=True):
        row |= {"value_bytes": len(value or b""), "digest": int(digest)}
    layout = Layout.RAW if is_raw else Layout.KIP30
    known = pa.schema([*arrow_schema(layout), *MEASURES])
    fields = [known.field(name) for name in compared_columns(is_raw=is_raw, full=False)]
    arrays = [
        pa.array(keys, pa.binary()).cast(fields[0].type),
        *(pa.array([row[one.name] for row in rows], one.type) for one in fields[1:]),
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _row(key: bytes, value: bytes | None, one: Record, rejected: tuple[Any, ...]) -> dict[str, Any]:
    names = ("rejected", "record", "prefix")
    version = {"major": one.major, "minor": one.minor}
    row = {"key": key, "value": value, "version": version, "moving": one.moving}
    return row | dict(zip(names, rejected, strict=True))


def rows_of(found: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    assert len({row[0] for row in found}) == len(found)
    return set(found)


def by_frames(
    spark: SparkSession, left: pa.Table, right: pa.Table, raw: frozenset[str]
) -> set[tuple[Any, ...]]:
    frames = {
        side: frame_comparison.comparable(spark.createDataFrame(table), full=False)
        for side, table in zip(SIDES, (left, right), strict=True)
    }
    found = frame_comparison.compared(
        frames["left"],
        frames["right"],
        full=False,
        hidden={side: frame_comparison.prefixes_of(frame) for side, frame in frames.items()},
        raw=raw,
    )
    assert tuple(found.columns) == COLUMNS
    return rows_of([tuple(map(_plain, row)) for row in found.collect()])


def _plain(field: Any) -> Any:
    if isinstance(field, bytearray):
        return bytes(field)
    return tuple(field) if isinstance(field, tuple) else field


def by_tables(left: pa.Table, right: pa.Table, raw: frozenset[str]) -> set[tuple[Any, ...]]:
    found = table_comparison.compared(left, right, raw=raw)
    assert tuple(found.column_names) == COLUMNS
    return rows_of(
        [
            tuple(tuple(one.values()) if isinstance(one, dict) else one for one in row.values())
            for row in found.to_pylist()
        ]
    )


# To shrink an example takes jobs of Spark's for each attempt.
@pytest.mark.parametrize("is_raw", [False, True])
@settings(max_examples=3, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32), raw=st.frozensets(st.sampled_from(SIDES)))
def test_both_forms_of_the_rule_agree(
    spark: SparkSession, seed: int, raw: frozenset[str], *, is_raw: bool
) -> None:
    """On many small sides at once, one of which may hide keys of another's case never."""
    random = Random(seed)  # noqa: S311  no secret
    cases = [[side(random, is_raw=is_raw) for _ in SIDES] for _ in range(CASES)]
    left, right = (table_of([case[number] for case in cases], is_raw=is_raw) for number in range(2))
    found = by_tables(left, right, raw)
    assert found == by_frames(spark, left, right, raw)
    assert {row[1] for row in found} == set(KINDS)


def test_a_prefix_of_all_keys_hides_all() -> None:
    """Without a record on the other side, and without a row on this one."""
    record = Record(b"1", 1, 0, moving=False)
    whole = table_of([({b"a": record}, [])], is_raw=False)
    rejecting = table_of([({}, [Refused(None, b"")])], is_raw=False)
    assert {row[1] for row in by_tables(whole, rejecting, frozenset())} == {UNSETTLED}
    assert by_tables(rejecting, rejecting, frozenset()) == set()
    assert by_tables(table_of([], is_raw=True), table_of([], is_raw=True), frozenset()) == set()
