"""The two sides of a diff: each becomes a table of keys with versions and digests.

A side that is read from a store is a run of its own, in a folder of its own, with a position, a
plan and waves; so a diff that is resumed reads nothing again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from typing_extensions import override

from kip30.driver.scanning import Layout, Span
from kip30.errors import StoreError, UsageError
from kip30.pipeline.compare.comparison import compared_columns
from kip30.pipeline.compare.frame_comparison import comparable, prefixes_of
from kip30.pipeline.compare.record_digests import with_digest
from kip30.pipeline.compare.side_files import SideFiles
from kip30.pipeline.run.directory import RunDirectory, read_manifest, verify_files
from kip30.pipeline.run.manifest import MANIFEST_NAME, Manifest
from kip30.pipeline.run.progress import Progress
from kip30.pipeline.run.wave_runner import WaveResult, run_waves
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.schemas import spark_schema
from kip30.pipeline.spark.session import slots
from kip30.pipeline.spark.wave_files import read_parquet, write_scanned
from kip30.pipeline.stores.endpoints import Endpoint, SnapshotEndpoint, StoreEndpoint
from kip30.pipeline.transfer.mapped_view import PathMapping, mapped
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles
from kip30.pipeline.transfer.view_reader import ViewReader

_JOB = "side of a diff"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The facts that decide how the sides are read.

    Attributes:
        into: The namespace that raw records are mapped to; None if they are compared as they are.
        full: Whether values are compared, and not their digests.
        span_rows: About how many rows a span has.
        request_seconds: How long a request of a scan may take.
    """

    into: str | None
    full: bool
    span_rows: int
    request_seconds: float | None


class DiffSide(ABC):
    """One side of a diff.

    Attributes:
        layout: That of its records, before they are mapped.
    """

    def __init__(self, spark: SparkSession, options: ReadOptions, layout: Layout) -> None:
        """Read with *options*."""
        self.layout = layout
        self._spark = spark
        self._options = options

    @property
    def is_mapped(self) -> bool:
        """True if its records are those of other programs, under keys of kip30's storage."""
        return self.layout is Layout.RAW and self._options.into is not None

    @property
    def has_keys(self) -> bool:
        """True if its table has keys of kip30's storage, and not paths."""
        return self.layout is Layout.KIP30 or self.is_mapped

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Description of the side: endpoint, store, position."""

    @abstractmethod
    def begin(self) -> None:
        """Take the position, unless there is one."""

    @abstractmethod
    def read(self, progress: Progress) -> None:
        """Read the rest; raises as `run_waves` does."""

    @property
    @abstractmethod
    def manifest(self) -> Manifest:
        """The manifest of the rows that were read."""

    @property
    @abstractmethod
    def is_part(self) -> bool:
        """True if its table leaves out rows of its manifest."""

    @property
    def rows(self) -> int:
        """Number of records in its manifest."""
        return self.manifest.digest.rows

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of its manifest."""

    @property
    def files(self) -> SideFiles | None:
        """Its files, if its table is all that they have as they have it."""
        if self.is_mapped or self.is_part:
            return None
        names = tuple(file.name for file in self.manifest.files)
        return SideFiles(self.folder, names, self.layout, self._key)

    @property
    def all_counts(self) -> Mapping[str, int]:
        """The numbers of records, rejected and skipped rows in its manifest."""
        total = self.manifest.total
        moving, rejected = total("moving"), total("rejected")
        return {"rows": self.rows, "rejected": rejected, "skipped": 0, "moving": moving}

    def counts(self, table: DataFrame) -> Mapping[str, int]:
        """Return how many records, rejected and skipped rows *table*, its own, has."""
        return side_counts(table) if self.is_mapped or self.is_part else self.all_counts

    def prefixes(self, table: DataFrame) -> Sequence[bytes]:
        """Return what `prefixes_of` *table*, its own, does."""
        # What a mapping alone rejects can be no key, so it hides none.
        return prefixes_of(table) if self.manifest.total("rejected") else ()

    @abstractmethod
    def close(self) -> None:
        """Release the lock on its folder, if it holds one."""

    def table(self) -> DataFrame:
        """Return its rows in the columns of `comparable`, and *skipped* as in `mapped`."""
        rows = self._rows()
        if not self.is_mapped:
            return comparable(rows, full=self._options.full).withColumn("skipped", _no_text())
        facts = self.facts
        into = self._options.into or ""
        place = PathMapping(into=into, under=facts["prefix"], is_tree=facts["is_tree"])
        found = with_digest(mapped(rows, rows, place))
        return comparable(found, full=self._options.full, more=("skipped",))

    @property
    def _key(self) -> str:
        """The name that its keys have in its files."""
        return "key"

    @abstractmethod
    def _rows(self) -> DataFrame:
        """Return what was read: if it is to be mapped, all columns of a snapshot's files."""


class SnapshotSide(DiffSide):
    """A snapshot, or part of one."""

    def __init__(
        self, spark: SparkSession, options: ReadOptions, endpoint: SnapshotEndpoint
    ) -> None:
        """Check that its files are there; raises as `SnapshotFiles` does."""
        self._files = SnapshotFiles(spark, endpoint)
        super().__init__(spark, options, self._files.layout)
        self._endpoint = endpoint

    @property
    @override
    def facts(self) -> dict[str, Any]:
        manifest = self._files.manifest
        here = {
            "endpoint": self._endpoint.text,
            "under": self._endpoint.under,
            "prefix": self._files.prefix,
            "folder": str(self._endpoint.folder.absolute()),
            "snapshot": manifest.run,
        }
        return manifest.source | here

    @property
    @override
    def manifest(self) -> Manifest:
        return self._files.manifest

    @property
    @override
    def is_part(self) -> bool:
        return bool(self._files.under)

    @property
    @override
    def folder(self) -> Path:
        return self._files.folder

    @override
    def begin(self) -> None:
        pass

    @override
    def read(self, progress: Progress) -> None:
        self._files.verify()

    @override
    def close(self) -> None:
        pass

    @property
    @override
    def _key(self) -> str:
        return "path" if self.layout is Layout.RAW else "key"

    @override
    def _rows(self) -> DataFrame:
        return self._files.rows()


class LiveSide(DiffSide):
    """Part of a store, read into the folder of the diff."""

    def __init__(
        self, spark: SparkSession, options: ReadOptions, endpoint: StoreEndpoint, folder: Path
    ) -> None:
        """Begin in *folder*, or continue with what is there. The caller holds the diff's lock."""
        super().__init__(spark, options, endpoint.layout)
        self._endpoint = endpoint
        is_begun = (folder / MANIFEST_NAME).exists()
        self._run = RunDirectory(folder, _JOB, {"endpoint": endpoint.text}, resume=is_begun)
        self._view = ViewReader(
            spark,
            endpoint,
            self._run,
            span_rows=options.span_rows,
            request_seconds=options.request_seconds,
        )

    @property
    @override
    def facts(self) -> dict[str, Any]:
        return self._run.manifest.source | {"config": self._endpoint.config.text()}

    @property
    @override
    def manifest(self) -> Manifest:
        return self._run.manifest

    @property
    @override
    def is_part(self) -> bool:
        return False

    @property
    @override
    def folder(self) -> Path:
        return self._run.path

    @override
    def begin(self) -> None:
        self._view.begin()

    @override
    def read(self, progress: Progress) -> None:
        manifest = self._run.manifest
        if manifest.counts:
            self._verify()
            return
        progress.begin(manifest)
        run_waves(self._run, self._wave, slots(self._spark), progress)
        self._view.finish()
        manifest.counts = {"rows": manifest.digest.rows}
        self._run.save()

    @override
    def close(self) -> None:
        self._run.close()

    def _verify(self) -> None:
        """Verify a side that was read before. Its position may be lost, so no part is read again.

        Raises:
            StoreError: A file is missing or was changed.
        """
        try:
            verify_files(self._run.path, self._run.manifest)
        except StoreError as error:
            raise StoreError(f"{error}: compare again, with another --out") from error

    def _wave(self, number: int, spans: Sequence[Span]) -> WaveResult:
        is_raw = self.layout is Layout.RAW
        columns = compared_columns(is_raw=is_raw, full=self._options.full)
        kept = None if self.is_mapped else columns
        with translating():
            return write_scanned(self._spark, self._run, number, self._view.tasks(spans), kept)

    def _kept(self, rows: DataFrame) -> DataFrame:
        return rows if self.is_mapped else comparable(rows, full=self._options.full)

    @override
    def _rows(self) -> DataFrame:
        files = self._run.manifest.files
        empty = with_digest(self._spark.createDataFrame([], spark_schema(self.layout)))
        return read_parquet(self._spark, self._run.path, files, self._kept(empty).schema)


def layout_at(endpoint: Endpoint) -> Layout:
    """Return the layout of *endpoint*.

    Raises:
        UsageError: It is the folder of another job.
        StoreError: The manifest of a snapshot cannot be read.
    """
    if isinstance(endpoint, StoreEndpoint):
        return endpoint.layout
    layout = read_manifest(endpoint.folder).source.get("layout")
    if layout is None:
        raise UsageError(f"{endpoint.text} is not the folder of a snapshot")
    return Layout(layout)


def open_side(
    spark: SparkSession, options: ReadOptions, endpoint: Endpoint, folder: Path
) -> DiffSide:
    """Return the side of *endpoint*, which reads into *folder* what is not a snapshot."""
    if isinstance(endpoint, SnapshotEndpoint):
        return SnapshotSide(spark, options, endpoint)
    return LiveSide(spark, options, endpoint, folder)


def side_counts(table: DataFrame) -> Mapping[str, int]:
    """Return how many records, rejected and skipped rows *table* has, one of `DiffSide.table`."""
    is_rejected, is_skipped = f.col("rejected").isNotNull(), f.col("skipped").isNotNull()
    named = {
        "rows": ~is_rejected & ~is_skipped,
        "rejected": is_rejected,
        "skipped": is_skipped,
        "moving": f.col("moving") & ~is_rejected & ~is_skipped,
    }
    (row,) = table.agg(*(f.count_if(one).alias(name) for name, one in named.items())).collect()
    return row.asDict()


def _no_text() -> Column:
    return f.lit(None).cast("string")
