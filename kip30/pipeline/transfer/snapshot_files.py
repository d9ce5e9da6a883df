"""Reading the files of a snapshot: those that its manifest lists, and no others."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, LongType, StructType

from kip30.driver.scanning import Layout, Span
from kip30.errors import StoreError, UsageError
from kip30.pipeline.run.directory import check_files, read_manifest, verify_files
from kip30.pipeline.run.manifest import SNAPSHOT_JOB, DataFile, Manifest
from kip30.pipeline.run.parquet_reading import rows_of
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.spark.schemas import spark_schema
from kip30.pipeline.spark.wave_files import read_parquet
from kip30.pipeline.stores.endpoints import SnapshotEndpoint


class SnapshotFiles:
    """A snapshot that is done.

    Attributes:
        manifest: Its manifest.
        folder: Its folder.
        under: The namespace or path that is the endpoint's part; empty: all.
        layout: That of its records.
        prefix: The beginning of the raw paths of the endpoint's part.
    """

    def __init__(self, spark: SparkSession, endpoint: SnapshotEndpoint) -> None:
        """Read the manifest of *endpoint*.

        Raises:
            UsageError: The part is outside of the snapshot.
            StoreError: It is not done, of a newer format, or a file is missing or of another size;
                the message names the file and its wave.
        """
        self.manifest: Manifest = read_manifest(endpoint.folder)
        if self.manifest.job != SNAPSHOT_JOB:
            raise StoreError(f"{endpoint.folder} is a run of {self.manifest.job}, not a snapshot")
        if not self.manifest.done:
            raise StoreError(f"{endpoint.folder} is not done: finish it with --resume")
        _check_part(endpoint, self.manifest)
        check_files(endpoint.folder, self.manifest)
        self.folder: Path = endpoint.folder.absolute()
        self.under: str = endpoint.under
        self.layout: Layout = Layout(self.manifest.source["layout"])
        self.prefix: str = endpoint.under or self.manifest.source["prefix"]
        self._spark = spark
        self._files = {file.name: file for file in self.manifest.files}

    def verify(self) -> None:
        """Read all of it, and compare each file with its checksum in the manifest.

        Raises:
            StoreError: A file was changed; the message names it and its wave.
        """
        verify_files(self.folder, self.manifest)

    def files_of(self, spans: Sequence[Span]) -> list[DataFile]:
        """Return the files of *spans*."""
        return [self._files[span.token.decode()] for span in spans]

    def spans(self) -> list[Span]:
        """Return a span for each file."""
        return [
            Span(file.name.encode(), wave.digest.rows // len(wave.files))
            for wave in self.manifest.waves
            for file in wave.files
        ]

    def count(self, spans: Sequence[Span]) -> int | None:
        """Return how many rows `rows` of *spans* has; None for a part, where only Spark knows it.

        Raises:
            StoreError: A file cannot be read; the message names it.
        """
        if self.under:
            return None
        return sum(_rows_of(self.folder / file.name) for file in self.files_of(spans))

    def rows(self, spans: Sequence[Span] | None = None) -> DataFrame:
        """Return the rows of *spans*, or all: those of the endpoint's part, rejected included."""
        files = self.files_of(self.spans() if spans is None else spans)
        rows = read_files(self._spark, self.folder, files, self.layout)
        return rows.where(self._is_inside(rows)) if self.under else rows

    def _is_inside(self, rows: DataFrame) -> Column:
        """Return whether a row is in the endpoint's part, or may hide a record that is."""
        under = self.under
        if self.layout is not Layout.RAW:
            below = f"{under}/"
            is_inside = rows["rejected"].isNull() & rows["key"].startswith(below)
        elif not self.manifest.source["is_tree"]:
            below = under
            is_inside = f.startswith("path", f.lit(under.encode()))
        else:
            node = under.removesuffix("/")
            below = f"{node}/"
            is_inside = (rows["text"] == node) | rows["text"].startswith(below)
        return f.coalesce(is_inside, f.lit(col=False)) | _may_hide(rows, below)


def _rows_of(path: Path) -> int:
    try:
        return rows_of(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _may_hide(rows: DataFrame, below: str) -> Column:
    """Return whether a rejected row may hide a record whose key begins with *below*."""
    prefix, begin = rows["prefix"], f.lit(below.encode())
    found = [
        f.startswith(rows["record"], begin),
        f.startswith(prefix, begin),
        f.startswith(begin, prefix),
    ]
    return reduce(or_, (f.coalesce(one, f.lit(col=False)) for one in found))


def _check_part(endpoint: SnapshotEndpoint, manifest: Manifest) -> None:
    facts, part = manifest.source, endpoint.under
    # A raw view may be of a table, with whose name no key begins.
    is_raw = facts["layout"] == Layout.RAW.value
    whole = facts["prefix"] if is_raw else facts["under"]
    if not part or not whole:
        return
    is_inside = f"{part}/".startswith(f"{whole.removesuffix('/')}/")
    if not (part.startswith(whole) if is_raw and not facts["is_tree"] else is_inside):
        raise UsageError(f"{endpoint.text}: the snapshot is of {whole!r}, which has no {part!r}")


def read_files(
    spark: SparkSession, folder: Path, files: Sequence[DataFile], layout: Layout
) -> DataFrame:
    """Return the rows of *files*, rejected ones included."""
    return read_parquet(spark, folder, files, _file_schema(layout))


def rejected_rows(rows: DataFrame) -> list[dict[str, str]]:
    """Return up to `MOST_FINDINGS` rejected keys of *rows*, each with its reason."""
    name = "path" if "path" in rows.columns else "key"
    found = rows.where(f.col("rejected").isNotNull()).select(name, "rejected")
    return [rejected_finding(*row) for row in found.limit(MOST_FINDINGS).collect()]


def rejected_finding(key: str | bytes, reason: str) -> dict[str, str]:
    """Return the finding of a rejected *key*."""
    return {"key": _text(key), "outcome": "rejected", "detail": reason}


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else bytes(key).decode(errors="backslashreplace")


def _file_schema(layout: Layout) -> StructType:
    schema = StructType(list(spark_schema(layout).fields))
    return schema.add("value_bytes", IntegerType()).add("digest", LongType())
