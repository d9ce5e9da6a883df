"""Columns that jobs add to records, and measures of them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


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


def _is_raw(records: DataFrame) -> bool:
    return "path" in records.columns
