"""The rule of `comparison` for DataFrames of any size: one job of Spark with one exchange."""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

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
    compared_columns,
    outermost,
)


def comparable(rows: DataFrame, *, full: bool, more: Sequence[str] = ()) -> DataFrame:
    """Return of *rows*, which have a digest, the columns that `differences` compares.

    Args:
        rows: Those of a snapshot, or of a scan with their digests.
        full: Whether values are compared, and not their digests.
        more: Columns that are kept besides.
    """
    key, *others = compared_columns(is_raw="path" in rows.columns, full=full)
    return rows.select(f.col(key).alias("key"), *others, *more)


def compared(
    left: DataFrame,
    right: DataFrame,
    *,
    full: bool,
    hidden: Mapping[str, Sequence[bytes]],
    raw: Collection[str],
) -> DataFrame:
    """Return the keys that have a value on one side alone, or not the same one on both.

    Args:
        left: Columns of `comparable`. Each key has one record at most.
        right: The same.
        full: As for `comparable`.
        hidden: The prefixes of each side (`prefixes_of`).
        raw: The sides that are raw.

    Returns:
        The columns `COLUMNS`. A key that no side has as a record is not among them.
    """
    found = differences(left, right, full=full)
    for side in SIDES:
        found = unsettle_hidden(found, side, hidden[side])
        if side in raw:
            found = unsettle_moving(found, side)
    return found.select(*COLUMNS)


def differences(left: DataFrame, right: DataFrame, *, full: bool) -> DataFrame:
    """Return what `compared` does, with the columns *left_moving* and *right_moving*.

    A key that one side rejects and the other has is unsettled. See `unsettle_hidden` for the others
    that a rejected row hides.
    """
    rows = _of_side(left, LEFT, full=full).unionByName(
        _of_side(right, RIGHT, full=full), allowMissingColumns=True
    )
    values = [name for name in rows.columns if name != "key"]
    # One exchange and no sort: but for values in full, all of these have a fixed size.
    keys = rows.groupBy("key").agg(*(f.max(name).alias(name) for name in values))
    versions = [_version(side).alias(f"{side}_version") for side in SIDES]
    found = keys.select("*", *versions, _kind(full=full).alias("kind"))
    found = found.where(f.col("kind").isNotNull())
    return found.select(*COLUMNS, *(f"{side}_moving" for side in SIDES))


def unsettle_moving(found: DataFrame, side: str) -> DataFrame:
    """Return *found*, whose keys that changed on *side* after the position are unsettled."""
    is_moving = f.coalesce(f.col(f"{side}_moving"), f.lit(False))  # noqa: FBT003
    kind = f.when(is_moving, UNSETTLED).otherwise(f.col("kind"))
    return found.withColumn("kind", kind)


def prefixes_of(rows: DataFrame) -> list[bytes]:
    """Return the prefixes of the keys that rejected ones of *rows* hide, none below another.

    Args:
        rows: Columns of `comparable`.
    """
    found = rows.where(f.col("prefix").isNotNull()).select("prefix").distinct().collect()
    return outermost(bytes(one) for (one,) in found)


def unsettle_hidden(found: DataFrame, side: str, prefixes: Sequence[bytes]) -> DataFrame:
    """Return *found*, whose keys that *side* does not have and may hide are unsettled.

    Args:
        found: Columns of `differences`.
        side: One of `SIDES`.
        prefixes: Those of the side's table (`prefixes_of`).
    """
    missing = ONLY_RIGHT if side == LEFT else ONLY_LEFT
    is_hidden = (f.col("kind") == missing) & is_below(f.col("key"), prefixes)
    return found.withColumn("kind", f.when(is_hidden, UNSETTLED).otherwise(f.col("kind")))


def is_below(key: Column, prefixes: Sequence[bytes]) -> Column:
    """Return whether *key*, text or bytes, begins with one of *prefixes* (`prefixes_of`)."""
    if not prefixes:
        return f.lit(col=False)

    def is_one_below(one: bytearray) -> bool:
        return begins_with_any(bytes(one), prefixes)

    # Spark would take the types of the function for those of one that works on columns.
    return f.udf(is_one_below, "boolean", useArrow=False)(key.cast("binary"))


def _of_side(rows: DataFrame, side: str, *, full: bool) -> DataFrame:
    """Return *rows* with columns of one side's own.

    A rejected row has only the key whose place it has, and is left out if it has none.
    """
    is_record = f.col("rejected").isNull()
    record = f.col("record").cast(rows.schema["key"].dataType)
    key = f.when(is_record, f.col("key")).otherwise(record).alias("key")
    columns = {
        "major": f.col("version.major"),
        "minor": f.col("version.minor"),
        "bytes": f.col("value_bytes"),
        "digest": f.col("digest"),
        "moving": f.col("moving"),
    }
    if full:
        columns["value"] = f.col("value")
    named = [f.when(is_record, one).alias(f"{side}_{name}") for name, one in columns.items()]
    found = rows.select(key, *named, (~is_record).alias(f"{side}_refused"))
    return found.where(f.col("key").isNotNull())


def _version(side: str) -> Column:
    parts = (f.col(f"{side}_{name}").alias(name) for name in ("major", "minor"))
    return f.when(_has(side), f.struct(*parts))


def _has(side: str) -> Column:
    """Return whether *side* has a record. Its value may be null: a node that has no data."""
    return f.col(f"{side}_major").isNotNull()


def _kind(*, full: bool) -> Column:
    """Return the kind of a key, null where both sides have the same value, or none has a record.

    A key does not count as missing on a side that has something there that is no record.
    """
    measured = ("value",) if full else ("bytes", "digest")
    is_same = [f.col(f"{LEFT}_{one}").eqNullSafe(f.col(f"{RIGHT}_{one}")) for one in measured]
    of_both = f.when(~reduce(and_, is_same), DIFFERS)
    return (
        f.when(_has(LEFT) & _has(RIGHT), of_both)
        .when(_has(LEFT), f.when(f.col(f"{RIGHT}_refused"), UNSETTLED).otherwise(ONLY_LEFT))
        .when(_has(RIGHT), f.when(f.col(f"{LEFT}_refused"), UNSETTLED).otherwise(ONLY_RIGHT))
    )
