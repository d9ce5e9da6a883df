"""The table of differences that a diff wrote: reading and counting it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from kip30.pipeline.compare.comparison import COLUMNS, KINDS, SIDES
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.parquet_reading import batches
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.spark.schemas import RECORDS
from kip30.pipeline.spark.wave_files import read_parquet

_SUMMARISED = ["key", "kind", *(f"{side}_version" for side in SIDES)]
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


def summary_of(
    folder: Path, files: Sequence[DataFile]
) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Return how many differences of each kind *files* have, and up to `MOST_FINDINGS` of them."""
    kinds: dict[str, int] = dict.fromkeys(KINDS, 0)
    findings: list[dict[str, str]] = []
    for file in files:
        for batch in batches(folder / file.name, _SUMMARISED):
            rows: list[dict[str, Any]] = batch.to_pylist()
            for row in rows:
                kinds[row["kind"]] += 1
            left = MOST_FINDINGS - len(findings)
            findings += map(_finding, rows[:left])
    return kinds, findings


def _finding(row: dict[str, Any]) -> dict[str, str]:
    left, right = (_shown(row[f"{side}_version"]) for side in SIDES)
    detail = f"versions {left} {right}"
    return {"key": text_of(row["key"]), "outcome": row["kind"], "detail": detail}


def _shown(version: dict[str, int] | None) -> str:
    return "-" if version is None else f"{version['major']}.{version['minor']}"


def text_of(key: str | bytes) -> str:
    """Return *key* as people can read it."""
    return key if isinstance(key, str) else bytes(key).decode(errors="backslashreplace")
