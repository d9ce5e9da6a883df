"""The jobs ``restore`` and ``migrate``: records of a snapshot, or of a store, into a store."""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kip30.driver.records import Fence
from kip30.driver.scanning import Span
from kip30.errors import UnavailableError, UsageError
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.job_errors import IncompleteRunError
from kip30.pipeline.run.manifest import MANIFEST_NAME, SNAPSHOT_FOLDER, DataFile, Digest
from kip30.pipeline.run.progress import NoProgress, Progress
from kip30.pipeline.run.report import JobEnding, Report, conclude
from kip30.pipeline.run.wave_runner import WaveResult, run_waves
from kip30.pipeline.run.waves import partitions
from kip30.pipeline.spark.bulk_write import (
    ALL_OUTCOMES,
    OUTCOMES,
    BulkWrite,
    SnapshotRecords,
    check_whole,
    doubles_of,
    outcome_counts,
    outcome_findings,
    write_records,
)
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.session import slots
from kip30.pipeline.spark.wave_files import read_parquet, write_files
from kip30.pipeline.stores.endpoints import SnapshotEndpoint
from kip30.pipeline.stores.identity import note_target
from kip30.pipeline.transfer import snapshot
from kip30.pipeline.transfer.mapped_view import PathMapping, mapped
from kip30.pipeline.transfer.restore_options import RestoreOptions
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles
from kip30.pipeline.write.outcomes import OnConflict
from kip30.pipeline.write.run_leader import RunLeader, drive_fenced

__all__ = ["OnConflict", "RestoreOptions", "run"]

_OUTCOMES = "outcomes"
_TO_LOOK_AT = ("conflict", "rejected")


def run(spark: SparkSession, options: RestoreOptions, progress: Progress | None = None) -> Report:
    """Write the records of the source into the target.

    Each record is created unless its key is there: an equal value counts as *same*, another one as
    *conflict*, and neither is changed, unless `OnConflict` says otherwise. Members, leaders and
    epochs are never copied. A store as the source is read into a snapshot in the run's folder
    first, which a feed can begin at.

    Raises:
        UsageError: The folder or the arguments cannot be used, or another process runs this run,
            or the target is another store than before. Nothing was written.
        UnsupportedError: A store does not offer what this needs. Nothing was made.
        StoreError: A file of the snapshot is missing or was changed. Nothing was written.
        Kip30Error: A store cannot be used.
    """
    options.check()
    arguments = options.arguments()
    with RunDirectory(options.out, options.job, arguments, resume=options.resume) as directory:
        return _Restore(spark, options, directory, progress or NoProgress()).run()


class _Restore:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        options: RestoreOptions,
        directory: RunDirectory,
        progress: Progress,
    ) -> None:
        self._spark = spark
        self._options = options
        self._run = directory
        self._progress = progress
        self._doubles: Collection[str] = ()

    def run(self) -> Report:
        note_target(self._run, self._options.target, self._options.accept_stores)
        folder, incomplete = self._snapshot()
        if incomplete is not None:
            return self._report(JobEnding.INCOMPLETE, incomplete)
        source = SnapshotFiles(self._spark, folder)
        source.verify()
        self._doubles = self._doubles_of(source)
        manifest = self._run.manifest
        if manifest.planned is None:
            manifest.source = {**source.manifest.source, "snapshot": source.manifest.run}
            self._run.save_plan(source.spans())
        elif (before := manifest.source["snapshot"]) != source.manifest.run:
            raise UsageError(
                f"{folder.text} is the snapshot {source.manifest.run}, and the run was begun with"
                f" {before}: name another folder with --out"
            )
        self._progress.begin(manifest)
        config = self._options.target.config
        try:
            with drive_fenced(
                config, manifest.run, manifest.target, fence=self._options.fence
            ) as leader:
                self._write_waves(source, leader)
        except IncompleteRunError as error:
            return self._report(JobEnding.INCOMPLETE, str(error))
        return self._finished()

    def _doubles_of(self, source: SnapshotFiles) -> Collection[str]:
        """Return the keys at the target that several records of *source* would have."""
        if not self._options.moves:
            return ()
        with translating():
            records = source.rows().where(f.col("rejected").isNull())
            return doubles_of(records, self._options.moves)

    def _snapshot(self) -> tuple[SnapshotEndpoint, str | None]:
        """Return the snapshot to write, and why it is not complete."""
        source = self._options.source
        if isinstance(source, SnapshotEndpoint):
            return source, None
        folder = self._run.path / SNAPSHOT_FOLDER
        endpoint = SnapshotEndpoint(source.text, folder, "")
        # A process that is killed before it has written a manifest leaves the folder alone.
        is_begun = (folder / MANIFEST_NAME).exists()
        if is_begun and read_manifest(folder).done:
            return endpoint, None
        report = snapshot.run(
            self._spark,
            snapshot.SnapshotOptions(
                source=source,
                out=folder,
                resume=is_begun,
                span_rows=self._options.span_rows,
                request_seconds=self._options.request_seconds,
            ),
            self._progress,
        )
        return endpoint, report.reason if report.ending is JobEnding.INCOMPLETE else None

    def _write_waves(self, source: SnapshotFiles, leader: RunLeader | None) -> None:
        def wave(number: int, spans: Sequence[Span]) -> WaveResult:
            # Each time, because a session that was lost meanwhile has ended the term before.
            with nullcontext() if leader is None else leader.writing() as fence:
                outcomes = self._outcomes(source, spans, fence)
                return self._wave(number, outcomes, source.count(spans))

        run_waves(self._run, wave, slots(self._spark), self._progress)

    def _outcomes(
        self, source: SnapshotFiles, spans: Sequence[Span], fence: Fence | None
    ) -> DataFrame:
        """Return the outcomes of writing *spans*; each action on the result writes again."""
        most = slots(self._spark)
        if self._options.into is not None:
            rows = self._to_write(source, spans, self._options.into)
            write = partial(write_records, replaces=self._replaces)
            return self._writing(fence, most).outcomes(rows, write)
        files = [source.files_of(group) for group in partitions(spans, most)]
        tasks = self._spark.range(0, len(files), 1, len(files))
        records = SnapshotRecords(
            folder=source.folder,
            files=files,
            under=source.under,
            moves=self._options.moves,
            doubles=self._doubles,
        )
        write = partial(records.write, replaces=self._replaces)
        return self._writing(fence, len(files)).outcomes(tasks, write)

    @property
    def _replaces(self) -> bool:
        return self._options.on_conflict is OnConflict.REPLACE

    def _writing(self, fence: Fence | None, tasks: int) -> BulkWrite:
        return BulkWrite(
            target=self._options.target.config,
            run=self._run.manifest.run,
            fence=fence,
            rate=self._options.rate,
            slots=tasks,
        )

    def _wave(self, number: int, outcomes: DataFrame, rows: int | None) -> WaveResult:
        """Write *outcomes*, which are of so many *rows*; None: that is not known."""
        with translating():
            files = write_files(self._run, _OUTCOMES, number, outcomes)
            counts = outcome_counts(self._read(files))
        check_whole(self._run.path, counts, rows)
        if counts["fenced"]:
            raise UnavailableError(f"the leadership ended before {counts['fenced']} writes")
        if counts["unknown"]:
            raise UnavailableError(f"{counts['unknown']} writes had no certain answer")
        if counts["conflict"] and self._options.on_conflict is OnConflict.FAIL:
            first = outcome_findings(self._read(files))[0]
            raise IncompleteRunError(
                f"{counts['conflict']} keys have other values at the target, such as"
                f" {first['key']}: {first['detail']}"
            )
        return WaveResult(Digest(sum(counts.values())), counts, files)

    def _to_write(self, source: SnapshotFiles, spans: Sequence[Span], into: str) -> DataFrame:
        rows = mapped(source.rows(spans), source.rows(), self._place(source, into))
        version = f.concat_ws(".", "version.major", "version.minor").alias("source")
        outcome = f.when(f.col("rejected").isNotNull(), "rejected").otherwise(f.col("skipped"))
        detail = f.col("rejected").alias("detail")
        return rows.select("key", "value", version, outcome.alias("outcome"), detail)

    def _place(self, source: SnapshotFiles, into: str) -> PathMapping:
        facts = source.manifest.source
        return PathMapping(into=into, under=source.prefix, is_tree=facts["is_tree"])

    def _read(self, files: Sequence[DataFile]) -> DataFrame:
        return read_parquet(self._spark, self._run.path, files, OUTCOMES)

    def _finished(self) -> Report:
        manifest = self._run.manifest
        manifest.counts = {name: manifest.total(name) for name in ALL_OUTCOMES}
        manifest.counts["rows"] = manifest.digest.rows
        found = any(manifest.counts[name] for name in _TO_LOOK_AT)
        return conclude(self._run, self._report(JobEnding.FINDINGS if found else JobEnding.DONE))

    def _report(self, ending: JobEnding, reason: str = "") -> Report:
        manifest = self._run.manifest
        files = manifest.files
        return Report.of(manifest, ending, outcome_findings(self._read(files)), reason)
