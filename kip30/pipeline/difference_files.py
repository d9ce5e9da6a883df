"""The table of differences that a diff wrote: reading and counting it."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from kip30.pipeline.comparison import COLUMNS, KINDS
from kip30.pipeline.manifest import DataFile
from kip30.pipeline.report import MOST_FINDINGS
from kip30.pipeline.schemas import RECORDS
from kip30.pipeline.wave_files import read_parquet

_TYPES = {
    "kind": StringType(),
    "version": from_arrow_schema(RECORDS)["version"].dataType,
    "bytes": IntegerType(),
    "digest": LongType(),
}


def read_differences(
    spark: SparkSession, folder: Path, files: Sequence[DataFile], *, has_paths: bool = False
) -> DataFrame:
    """Return the differences in *files* of *folder*, in the columns `COLUMNS`.

    Args:
        spark: The session to read with.
        folder: That of the diff.
        files: Those that its manifest lists.
        has_paths: Whether its keys are the paths of other programs, as bytes.
    """
    schema = StructType().add("key", BinaryType() if has_paths else StringType())
    for name in COLUMNS[1:]:
        schema = schema.add(name, _TYPES[name.rpartition("_")[2]])
    return read_parquet(spark, folder, files, schema)


def count_kinds(found: DataFrame) -> dict[str, int]:
    """Return how many differences there are of each kind."""
    counts = dict.fromkeys(KINDS, 0)
    return counts | dict(found.groupBy("kind").count().collect())


def first_findings(found: DataFrame) -> list[dict[str, str]]:
    """Return up to `MOST_FINDINGS` keys of *found*, each with its kind."""
    columns = ("left_version", "right_version")
    versions = [f.concat_ws(".", f"{one}.major", f"{one}.minor").alias(one) for one in columns]
    rows = found.select("key", "kind", *versions).limit(MOST_FINDINGS).collect()
    return [
        {"key": text_of(key), "outcome": kind, "detail": f"versions {left or '-'} {right or '-'}"}
        for key, kind, left, right in rows
    ]


def text_of(key: str | bytes) -> str:
    """Return *key* as people can read it."""
    return key if isinstance(key, str) else bytes(key).decode(errors="backslashreplace")
