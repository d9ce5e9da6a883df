"""Columns that jobs add to records, and measures of them."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from kip30.pipeline.manifest import Digest


class Measures(NamedTuple):
    """The digest and the counts of the records of a DataFrame."""

    digest: Digest
    counts: Mapping[str, int]


class Expected:
    """The measures of rows on their way into files, known once these are written."""

    def __init__(self, observation: Observation) -> None:
        """Take them from *observation*."""
        self._observation = observation

    @property
    def get(self) -> Measures:
        """The measures."""
        return _measures(self._observation.get)


def with_digest(records: DataFrame) -> DataFrame:
    """Return *records* with the columns *value_bytes* and *digest*.

    The digest is Spark's xxhash64 of key and value alone: equal values on two stores are equal. It
    skips nulls, so that a value is missing is hashed, too.
    """
    key = f.col("path" if _is_raw(records) else "key")
    value = f.col("value")
    digest = f.xxhash64(key, value.isNull(), value) if _is_raw(records) else f.xxhash64(key, value)
    size = f.coalesce(f.octet_length(value), f.lit(0))
    return records.withColumns({"value_bytes": size, "digest": digest})


def measured(records: DataFrame, number: int) -> tuple[DataFrame, Expected]:
    """Return *records* in such a way that the next action on them measures them, too."""
    observation = Observation(f"wave-{number}")
    return records.observe(observation, *_aggregates()), Expected(observation)


def digest_of(records: DataFrame) -> Measures:
    """Return the measures of *records*, which have the columns of `with_digest`."""
    (row,) = records.agg(*_aggregates()).collect()
    return _measures(row.asDict())


def _is_raw(records: DataFrame) -> bool:
    return "path" in records.columns


def _aggregates() -> list[Column]:
    is_record = f.col("rejected").isNull()
    digest = f.when(is_record, f.col("digest"))
    return [
        f.count(digest).alias("rows"),
        f.sum(digest.cast("decimal(38,0)")).alias("total"),
        f.bit_xor(digest).alias("xor"),
        f.count_if(f.col("moving") & is_record).alias("moving"),
        f.count_if(~is_record).alias("rejected"),
        f.sum(f.col("value_bytes").cast("bigint")).alias("value_bytes"),
    ]


def _measures(found: Mapping[str, object]) -> Measures:
    numbers = {name: int(str(number or 0)) for name, number in found.items()}
    digest = Digest(numbers.pop("rows"), numbers.pop("total"), numbers.pop("xor"))
    return Measures(digest, numbers)
