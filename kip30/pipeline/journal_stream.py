"""Spark's stream over a journal: it remembers what is applied, and a sink takes its batches."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from kip30.pipeline.feed_sinks import Sink, Written
from kip30.pipeline.job_errors import JobFailedError
from kip30.pipeline.journal import Journal
from kip30.pipeline.report import MOST_FINDINGS
from kip30.pipeline.run_directory import RunDirectory
from kip30.pipeline.spark_errors import translating
from kip30.pipeline.wakeup import Wakeup
from kip30.pipeline.wave_files import literal_path

MOST_SEGMENTS = 16
_BATCHES = 1_000_000
"""More than a volume has."""

_CHECKPOINT = "checkpoint"
_APPLIED = "changes"
_FOREVER = "36500d"


class _Extent(NamedTuple):
    """How many rows a batch has, and the number of the row after them."""

    rows: int
    end: int


class StreamStoppedError(Exception):
    """The stream was stopped between two batches."""


class JournalStream:
    """Applies a journal to a sink, segment by segment in their order, each in one batch.

    Attributes:
        applied_segment: The last segment that is applied, as far as this process knows.
        applied_rows: How many rows of the journal are applied.
        on_batch: Called after each batch.
        most_segments: How many segments a batch has at most.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: RunDirectory,
        journal: Journal,
        sink: Sink,
        stop: Wakeup,
    ) -> None:
        """Apply *journal* to *sink* until *stop* is set."""
        self.on_batch: Callable[[], None] = _nothing
        self._spark = spark
        self._run = directory
        self._journal = journal
        self._sink = sink
        self._stop = stop
        self._schema = from_arrow_schema(journal.schema)
        self._failure: BaseException | None = None
        self._findings: list[Mapping[str, str]] = []
        self.applied_segment: int = -1
        self.applied_rows: int = directory.manifest.counts.get(_APPLIED, 0)
        self.most_segments: int = MOST_SEGMENTS
        self._remove_volumes()

    def apply(self) -> Sequence[Mapping[str, str]]:
        """Apply all that is in the journal, and return findings.

        Raises:
            StreamStoppedError: It was stopped before that.
            JobFailedError: Spark could not do it. The batch under way comes again.
            Kip30Error: The same, for a reason of the sink's.
        """
        self._findings = []
        while True:
            segment, newest = self._journal.segment, self._journal.volume
            self._drain()
            if self._volume == newest:
                break
            # The journal had begun another volume before this one was drained: it is complete.
            self._run.manifest.counts["volume"] = self._volume + 1
            self._run.save()
            self._remove_volumes()
        self.applied_segment = segment
        return self._findings

    @property
    def _volume(self) -> int:
        return self._run.manifest.counts.get("volume", 0)

    def _drain(self) -> None:
        """Apply what is in the volume."""
        self._failure = None
        try:
            with translating():
                self._stream()
        except OSError as error:  # Spark's process is gone
            raise JobFailedError(f"Spark does not answer: {error}") from error
        except Exception:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _stream(self) -> None:
        folder = literal_path(self._journal.volume_folder(self._volume))
        reader = self._spark.readStream.schema(self._schema)
        reader = reader.option("maxFilesPerTrigger", MOST_SEGMENTS).option("maxFileAge", _FOREVER)
        writer = reader.parquet(folder).writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", str(self._checkpoint(self._volume)))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _batch(self, rows: DataFrame, number: int) -> None:
        """Apply one batch. Spark calls this on another thread, while `_drain` waits."""
        try:
            self._check_stopped()
            batch = self._volume * _BATCHES + number
            with translating():
                extent = _extent(rows)
                written = self._sink.write(rows, batch, extent.rows)
            self._note(batch, extent, written)
            self.on_batch()
        except BaseException as error:
            self._failure = error
            raise

    def _check_stopped(self) -> None:
        if self._stop.is_set:
            raise StreamStoppedError

    def _note(self, batch: int, extent: "_Extent", written: Written) -> None:
        """Count a batch, once. If it comes again, it was counted or it was not applied."""
        counts = self._run.manifest.counts
        self.applied_rows = max(self.applied_rows, extent.end)
        counts[_APPLIED] = self.applied_rows
        if batch <= counts.get("batch", -1):
            return
        for name, number in written.counts.items():
            counts[name] = counts.get(name, 0) + number
        counts["batch"] = batch
        self._findings = [*self._findings, *written.findings][:MOST_FINDINGS]
        self._run.save()

    def _checkpoint(self, volume: int) -> Path:
        return self._run.path / _CHECKPOINT / f"{volume:06}"

    def _remove_volumes(self) -> None:
        """Delete what is applied, with what Spark remembers of it."""
        self._journal.remove_before(self._volume)
        for folder in self._checkpoint(0).parent.glob("*"):
            if int(folder.name) < self._volume:
                rmtree(folder, ignore_errors=True)


def _extent(rows: DataFrame) -> _Extent:
    (found,) = rows.agg(f.count("number"), f.max("number")).collect()
    return _Extent(found[0], 0 if found[1] is None else found[1] + 1)


def _nothing() -> None:
    """Do nothing."""
