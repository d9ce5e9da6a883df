"""Applies the journal of a feed to a sink: whole segments, in order, in batches.

Structured Streaming would do the same, but not for long: each of its queries whose batches a
Python function handles leaves a thread and a socket in the driver, and a feed that waits for news
begins a query for each batch.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip30.errors import StoreError
from kip30.pipeline.follow.feed_sinks import Sink, Written
from kip30.pipeline.follow.journal import Journal
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.spark.errors import translating
from kip30.pipeline.spark.wave_files import literal_path

MOST_SEGMENTS = 16
"""The most segments in one batch."""

_COMMITTED = "segments"
_BEGUN = "begun_segments"
POSITIONS = (_COMMITTED, _BEGUN)
"""Counts of the manifest that are positions in the journal."""
_ROWS = "changes"


class JournalConsumer:
    """Applies a journal to a sink.

    The manifest of the run has the number of segments applied, and the number once the batch under
    way is: after a crash the same batch comes again, and its outcomes count once.
    """

    def __init__(
        self, spark: SparkSession, directory: RunDirectory, journal: Journal, sink: Sink
    ) -> None:
        """Resume at the position in the manifest of *directory*.

        Raises:
            StoreError: *journal* ends before this position.
        """
        self._spark = spark
        self._run = directory
        self._journal = journal
        self._sink = sink
        self._schema = from_arrow_schema(journal.schema)
        if self.backlog < 0:
            raise StoreError(
                f"{directory.path} has applied segment {self.segment}, and its journal ends with"
                f" segment {journal.segment}: these files were copied at two moments; begin"
                " another run"
            )
        journal.remove_before(self._committed)

    @property
    def segment(self) -> int:
        """The last segment that is applied; -1: none is."""
        return self._committed - 1

    @property
    def backlog(self) -> int:
        """Number of segments that are not applied."""
        return self._journal.segment - self.segment

    @property
    def rows(self) -> int:
        """Number of rows of the journal that are applied."""
        return self._run.manifest.counts.get(_ROWS, 0)

    def apply_batch(self) -> None:
        """Apply the next segments, at least one; the manifest has its findings then, too.

        Raises:
            JobFailedError: Spark could not do it. The same batch comes again.
            StoreError: The journal is damaged, or the folder of the run cannot be written.
            Kip30Error: The sink cannot take the batch. It comes again.
        """
        segments = self._begin()
        rows = sum(map(self._journal.rows_of, segments))
        written = self._write(segments, rows) if rows else Written()
        self._commit(segments, rows, written)
        self._journal.remove_before(segments.stop)

    @property
    def _committed(self) -> int:
        return self._run.manifest.counts.get(_COMMITTED, 0)

    def _begin(self) -> range:
        """Return the segments of the next batch; one that was begun before has the same ones."""
        if self._run.manifest.counts.get(_BEGUN, 0) <= self._committed:
            end = min(self._journal.segment + 1, self._committed + MOST_SEGMENTS)
            self._save({_BEGUN: end})
        return range(self._committed, self._run.manifest.counts[_BEGUN])

    def _write(self, segments: range, rows: int) -> Written:
        files = [literal_path(self._journal.file_of(segment)) for segment in segments]
        with translating():
            frame = self._spark.read.schema(self._schema).parquet(*files)
            return self._sink.write(frame, segments.start, rows)

    def _commit(self, segments: range, rows: int, written: Written) -> None:
        counts = self._run.manifest.counts
        sums = {name: counts.get(name, 0) + number for name, number in written.counts.items()}
        counted = sums | {_COMMITTED: segments.stop, _ROWS: self.rows + rows}
        self._save(counted, written.findings)

    def _save(self, counts: Mapping[str, int], findings: Sequence[Mapping[str, str]] = ()) -> None:
        """Save *counts* and *findings*, all or none."""
        manifest = self._run.manifest
        before = manifest.counts, manifest.unreported
        manifest.counts = {**manifest.counts, **counts}
        manifest.unreported = [*manifest.unreported, *map(dict, findings)][:MOST_FINDINGS]
        try:
            self._run.save()
        except OSError as error:
            manifest.counts, manifest.unreported = before
            raise StoreError(f"{self._run.path} cannot be written: {error}") from error
