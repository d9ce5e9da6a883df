"""The job ``snapshot``: a view of a store into Parquet files that a manifest lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from kip30.driver import Capability
from kip30.driver.scanning import Layout, Span
from kip30.errors import PositionLostError, UnavailableError
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.job_errors import IncompleteRunError
from kip30.pipeline.run.manifest import SNAPSHOT_JOB, DataFile
from kip30.pipeline.run.progress import NoProgress, Progress
from kip30.pipeline.run.report import JobEnding, Report, conclude
from kip30.pipeline.run.wave_runner import WaveResult, run_waves
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.session import slots
from kip30.pipeline.spark.source import SPAN_ROWS
from kip30.pipeline.spark.wave_files import write_scanned
from kip30.pipeline.stores.endpoints import StoreEndpoint, require
from kip30.pipeline.transfer.snapshot_files import read_files, rejected_rows
from kip30.pipeline.transfer.view_reader import ViewReader


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Arguments of the job ``snapshot``.

    Attributes:
        source: The part of a store.
        out: The folder of the run.
        resume: Whether to continue the run in *out*.
        span_rows: About how many rows a span has.
        request_seconds: How long a request of a scan may take.
        show_claims: Whether to write members, leaders and epochs for people to look at.
    """

    source: StoreEndpoint
    out: Path
    resume: bool = False
    span_rows: int = SPAN_ROWS
    request_seconds: float | None = None
    show_claims: bool = False

    job: ClassVar[str] = SNAPSHOT_JOB

    def arguments(self) -> dict[str, Any]:
        """Return what decides the result."""
        return {
            "source": self.source.text,
            "span_rows": self.span_rows,
            "show_claims": self.show_claims,
        }

    def check(self) -> None:
        """Raise if there can be no snapshot.

        Raises:
            UnsupportedError: The store does not offer scanning.
            ConfigError: Its configuration is wrong.
        """
        require(self.source, Capability.SCANNING)


def run(spark: SparkSession, options: SnapshotOptions, progress: Progress | None = None) -> Report:
    """Take the snapshot.

    Every record of the view is in it exactly once, with the consistency that the store offers. A
    run that stopped before its end continues with *resume*; a snapshot that is done never changes.

    Raises:
        UsageError: The folder cannot be used. Nothing was read.
        UnsupportedError: The store does not offer scanning. Nothing was made.
        Kip30Error: The store cannot be read. Nothing is in the snapshot yet.
    """
    options.check()
    arguments = options.arguments()
    with RunDirectory(options.out, SNAPSHOT_JOB, arguments, resume=options.resume) as directory:
        return _Snapshot(spark, options, directory).run(progress or NoProgress())


class _Snapshot:
    """One run of the job."""

    def __init__(
        self, spark: SparkSession, options: SnapshotOptions, directory: RunDirectory
    ) -> None:
        self._spark = spark
        self._options = options
        self._run = directory
        self._view = ViewReader(
            spark,
            options.source,
            directory,
            span_rows=options.span_rows,
            request_seconds=options.request_seconds,
        )

    def run(self, progress: Progress) -> Report:
        self._view.begin()
        manifest = self._run.manifest
        progress.begin(manifest)
        try:
            if self._options.source.layout is Layout.KIP30:
                self._view.note_claims(show=self._options.show_claims)
            run_waves(self._run, self._wave, slots(self._spark), progress)
        except (IncompleteRunError, PositionLostError) as error:
            return self._report(JobEnding.INCOMPLETE, str(error))
        try:
            self._view.finish()
        except UnavailableError as error:
            return self._report(JobEnding.INCOMPLETE, f"all is read, but how it ends: {error}")
        names = ("moving", "rejected", "value_bytes")
        manifest.counts = {"rows": manifest.digest.rows} | {
            name: manifest.total(name) for name in names
        }
        ending = JobEnding.FINDINGS if manifest.counts["rejected"] else JobEnding.DONE
        return conclude(self._run, self._report(ending))

    def _wave(self, number: int, spans: Sequence[Span]) -> WaveResult:
        with translating():
            return write_scanned(self._spark, self._run, number, self._view.tasks(spans))

    def _read(self, files: Sequence[DataFile]) -> DataFrame:
        return read_files(self._spark, self._run.path, files, self._options.source.layout)

    def _report(self, ending: JobEnding, reason: str = "") -> Report:
        manifest = self._run.manifest
        files = manifest.files
        # Of an incomplete run the reason counts, and there may no longer be a session.
        is_found = ending is JobEnding.FINDINGS
        findings = rejected_rows(self._read(files)) if is_found else ()
        return Report.of(manifest, ending, findings, reason)
