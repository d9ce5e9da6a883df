"""Two tables of records compared key by key, in one job of Spark."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)

ONLY_LEFT = "only_left"
ONLY_RIGHT = "only_right"
DIFFERS = "differs"
UNSETTLED = "unsettled"
"""Of a key that changed while it was read, or that one side cannot read as a record."""
KINDS = (ONLY_LEFT, ONLY_RIGHT, DIFFERS, UNSETTLED)

_COMPARED = ("version", "value_bytes", "digest", "moving", "rejected")
_OF_BOTH = ("version", "bytes", "digest")
COLUMNS = ("key", "kind", *(f"{side}_{name}" for name in _OF_BOTH for side in SIDES))


def comparable(rows: DataFrame, *, full: bool, more: Sequence[str] = ()) -> DataFrame:
    """Return of *rows*, which have a digest, the columns that `differences` compares.

    Args:
        rows: Those of a snapshot, or of a scan with their digests.
        full: Whether values are compared, and not their digests.
        more: Columns that are kept besides.
    """
    key, *others = compared_columns(is_raw="path" in rows.columns, full=full)
    return rows.select(f.col(key).alias("key"), *others, *more)


def compared_columns(*, is_raw: bool, full: bool) -> tuple[str, ...]:
    """Return the names of the columns that are compared; the key is the first."""
    value = ("value",) if full else ()
    return ("path" if is_raw else "key", *_COMPARED, *value)


def differences(left: DataFrame, right: DataFrame, *, full: bool) -> DataFrame:
    """Return the keys that have a value on one side alone, or not the same one on both.

    Args:
        left: Columns of `comparable`. Each key has one record at most.
        right: The same.
        full: As for `comparable`.

    Returns:
        The columns `COLUMNS`. A key that one side rejects and the other has is unsettled; a key
        that no side has as a record is not among them.
    """
    joined = _records(left, LEFT, full=full).join(
        _records(right, RIGHT, full=full), "key", "full_outer"
    )
    found = joined.withColumn("kind", _kind(full=full)).where(f.col("kind").isNotNull())
    for side, rows in ((LEFT, left), (RIGHT, right)):
        found = _unsettle_rejected(found, side, rows)
    return found.select(*COLUMNS, *(f"{side}_moving" for side in SIDES))


def unsettle_moving(found: DataFrame, side: str) -> DataFrame:
    """Return *found*, whose keys that changed on *side* after the position are unsettled."""
    is_moving = f.coalesce(f.col(f"{side}_moving"), f.lit(False))  # noqa: FBT003
    kind = f.when(is_moving, UNSETTLED).otherwise(f.col("kind"))
    return found.withColumn("kind", kind)


def _records(rows: DataFrame, side: str, *, full: bool) -> DataFrame:
    names = {"version": "version", "bytes": "value_bytes", "digest": "digest", "moving": "moving"}
    names |= {"value": "value"} if full else {}
    columns = [f.col(name).alias(f"{side}_{alias}") for alias, name in names.items()]
    return rows.where(f.col("rejected").isNull()).select("key", *columns)


def _kind(*, full: bool) -> Column:
    """Return the kind of a key, null where both sides have the same value.

    A side without the key has no version. A value may be null: a node that has no data.
    """
    compared = ("value",) if full else ("bytes", "digest")
    is_same = [f.col(f"{LEFT}_{one}").eqNullSafe(f.col(f"{RIGHT}_{one}")) for one in compared]
    return (
        f.when(f.col("right_version").isNull(), ONLY_LEFT)
        .when(f.col("left_version").isNull(), ONLY_RIGHT)
        .when(~reduce(and_, is_same), DIFFERS)
    )


def _unsettle_rejected(found: DataFrame, side: str, rows: DataFrame) -> DataFrame:
    """Let no key count as missing on *side* where *side* has something that is no record."""
    refused = rows.where(f.col("rejected").isNotNull()).select("key").distinct()
    joined = found.join(refused.withColumn("refused", f.lit(True)), "key", "left")  # noqa: FBT003
    is_refused = f.col("refused").isNotNull() & f.col(f"{side}_version").isNull()
    kind = f.when(is_refused, UNSETTLED).otherwise(f.col("kind"))
    return joined.withColumn("kind", kind).drop("refused")
