"""The tasks of a repair: fetch the values of the left side, and write them if all matches."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kip30.driver.records import Entry, Version
from kip30.errors import StoreError
from kip30.pipeline.compare.frame_comparison import is_below
from kip30.pipeline.compare.rechecking import EntryReader
from kip30.pipeline.compare.repair_plan import CREATE, LeftNow
from kip30.pipeline.spark.bulk_write import Decided
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.write.applier import Applier
from kip30.pipeline.write.outcomes import NewRecord, Replacement, WriteOutcome

_ROWS = 500
_COLUMNS = (
    "key string, action string, version struct<major: bigint, minor: bigint>, source string,"
    " value binary, refused string"
)
_VERSION = pa.struct([("major", pa.int64()), ("minor", pa.int64())])
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("action", pa.string()),
        ("version", _VERSION),
        ("source", pa.string()),
        ("value", pa.binary()),
        ("refused", pa.string()),
    ]
)


def with_values_of_store(plan: DataFrame, config: StoreConfig) -> DataFrame:
    """Return *plan* with the values that the store of *config* has for its keys.

    They are read linearizably, in the tasks. *refused* says why a key is not written: the store
    has another version than the plan wants, or a record where the plan wants none.
    """
    names = ("key", "action", "version", "left_version")

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as closer:
            reader = EntryReader(config, closer)
            for batch in batches:
                for first in range(0, batch.num_rows, _ROWS):
                    yield _with_values(batch.slice(first, _ROWS), reader)

    return plan.select(*names).mapInArrow(apply, _COLUMNS)


def with_values_of_rows(plan: DataFrame, left: LeftNow) -> DataFrame:
    """Return *plan* with the values of *left*.

    *refused* says why a key is not written: it has another record there than the diff saw, or there
    is one where the diff saw none, or it is not known whether there is.
    """
    rows, found = left.rows, f.col("version").alias("found")
    values = rows.where(f.col("rejected").isNull()).select("key", "value", found, "digest")
    record = f.col("record").cast("string").alias("key")
    places = rows.where(f.col("record").isNotNull()).select(record).distinct()
    joined = plan.join(values, "key", "left").join(
        places.withColumn("is_rejected", f.lit(col=True)), "key", "left"
    )
    is_unknown = f.col("is_rejected").isNotNull() | is_below(f.col("key"), left.prefixes)
    wanted, has = f.col("left_version"), f.col("found").isNotNull()
    is_same = (f.col("found") == wanted) & (f.col("digest") == f.col("left_digest"))
    refused = (
        f.when(wanted.isNull() & has, "the left side has it by now, and did not have it")
        .when(has & ~is_same, "the left side has another record by now than the diff saw")
        .when(~has & is_unknown, "the left side cannot be read there")
        .when(wanted.isNotNull() & ~has, "the left side had it and no longer has it")
        .alias("refused")
    )
    source = f.concat_ws(".", "left_version.major", "left_version.minor").alias("source")
    return joined.select("key", "action", "version", source, "value", refused)


def write_plan(applier: Applier, batch: pa.RecordBatch) -> Iterator[list[Decided]]:
    """Do what the rows of *batch* say, each at the version that the diff saw or not at all."""
    creations: list[NewRecord] = []
    changes: list[Replacement] = []
    decided: list[Decided] = []
    columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
    for key, action, version, source, value, refused in zip(*columns, strict=True):
        if refused is not None:
            decided.append(Decided(key, WriteOutcome.CONFLICT.value, refused))
        elif action == CREATE:
            creations.append(NewRecord(key, value, source))
        else:
            changes.append(Replacement(key, value, source, Version(**version)))
    applied = applier.create(creations) + applier.replace(changes)
    yield decided + [Decided(one.key, one.outcome.value, one.detail) for one in applied]


def _with_values(batch: pa.RecordBatch, reader: EntryReader) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = batch.to_pydict()
    expected = [None if one is None else Version(**one) for one in columns["left_version"]]
    entries = reader.read(columns["key"])
    found = [_value(*pair) for pair in zip(entries, expected, strict=True)]
    arrays: list[Any] = [
        *(batch.column(name) for name in ("key", "action", "version")),
        pa.array(["" if one is None else str(one) for one in expected], pa.string()),
        pa.array([value for value, _ in found], pa.binary()),
        pa.array([refused for _, refused in found], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_SCHEMA.names)


def _value(
    entry: Entry | StoreError | None, expected: Version | None
) -> tuple[bytes | None, str | None]:
    """Return the value of *entry*, or why it is not what the diff saw."""
    if isinstance(entry, StoreError):
        return None, f"the left side cannot be read there: {entry}"
    if entry is None:
        lost = f"the left side had it at version {expected} and no longer has it"
        return None, lost if expected else None
    if expected is None:
        return None, f"the left side has it at version {entry.version} by now, and did not have it"
    if entry.version != expected:
        return None, f"the left side has version {entry.version} by now and had {expected}"
    return entry.data, None
