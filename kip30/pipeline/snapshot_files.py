"""Reading the files of a snapshot: those that its manifest lists, and no others."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StructType

from kip30.errors import StoreError
from kip30.pipeline.endpoints import SnapshotEndpoint
from kip30.pipeline.manifest import DataFile, Manifest
from kip30.pipeline.report import MOST_FINDINGS
from kip30.pipeline.run_directory import check_files, read_manifest
from kip30.pipeline.schemas import spark_schema
from kip30.scanning import Layout

_JOB = "snapshot"


def read_snapshot(endpoint: SnapshotEndpoint) -> Manifest:
    """Return the manifest of a snapshot whose files are all there.

    Raises:
        StoreError: It is not done, of a newer format, or a file is missing or of another size; the
            message names the file and its wave.
    """
    manifest = read_manifest(endpoint.folder)
    if manifest.job != _JOB:
        raise StoreError(f"{endpoint.folder} holds a run of {manifest.job}, not a snapshot")
    if not manifest.done:
        raise StoreError(f"{endpoint.folder} is not done: finish it with --resume")
    check_files(endpoint.folder, manifest)
    return manifest


def layout_of(manifest: Manifest) -> Layout:
    """Return the layout of a snapshot."""
    return Layout(manifest.source["layout"])


def read_files(
    spark: SparkSession, folder: Path, files: Sequence[DataFile], layout: Layout
) -> DataFrame:
    """Return the rows of *files*, rejected ones included."""
    names = [str(folder / file.name) for file in files]
    if not names:
        return spark.createDataFrame([], _file_schema(layout))
    return spark.read.schema(_file_schema(layout)).parquet(*names)


def records_of(rows: DataFrame) -> DataFrame:
    """Return *rows* without the rejected ones."""
    return rows.where(f.col("rejected").isNull()).drop("rejected")


def rejected_rows(rows: DataFrame) -> list[dict[str, str]]:
    """Return up to `MOST_FINDINGS` rejected keys of *rows*, each with its reason."""
    name = "path" if "path" in rows.columns else "key"
    found = rows.where(f.col("rejected").isNotNull()).select(name, "rejected")
    return [
        {"key": _text(key), "outcome": "rejected", "detail": reason}
        for key, reason in found.limit(MOST_FINDINGS).collect()
    ]


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else bytes(key).decode(errors="backslashreplace")


def _file_schema(layout: Layout) -> StructType:
    schema = StructType(list(spark_schema(layout).fields))
    return schema.add("value_bytes", IntegerType()).add("digest", LongType())
