"""The job ``feed``: changes in a view of a store, into Parquet files by day or a store."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from kip30.driver.scanning import ScanDriver
from kip30.errors import ConfigError, Kip30Error, UnavailableError
from kip30.pipeline.follow.feed_options import FeedOptions, resumed
from kip30.pipeline.follow.feed_sinks import OUT, FilesSink, Sink, StoreSink
from kip30.pipeline.follow.feed_start import Baseline
from kip30.pipeline.follow.journal import Journal
from kip30.pipeline.follow.journal_consumer import MOST_SEGMENTS, POSITIONS, JournalConsumer
from kip30.pipeline.follow.journal_rows import JournalPosition
from kip30.pipeline.follow.known_keys import KnownKeys
from kip30.pipeline.follow.tail import ANY_NUMBER, Tail, TailFiles, TailSettings, begin_at
from kip30.pipeline.follow.tail_thread import Backoff, TailThread
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.job_errors import JobFailedError
from kip30.pipeline.run.manifest import FEED_JOB
from kip30.pipeline.run.progress import FeedProgress, NoProgress, Progress
from kip30.pipeline.run.report import MOST_FINDINGS, JobEnding, Report, save_report
from kip30.pipeline.run.wakeup import Wakeup, set_by_interrupt
from kip30.pipeline.spark.session import slots
from kip30.pipeline.stores.identity import (
    check_same,
    check_target,
    open_source,
    place_of,
    save_target,
)
from kip30.pipeline.stores.mapped_scanner import MappedScanner

__all__ = ["FeedOptions", "run"]

_FILES_SECONDS = 60.0
_FAILED_JOBS = 5
_PRESENT = ("waiting", "lag_seconds", "rejected_records")
"""Counts that are of a moment, and no sums."""
_TO_LOOK_AT = ("rejected", "rejected_records", "conflict", "gaps")
_JOURNAL = "journal"
_KNOWN = "known.db"
_SCRATCH = "scratch"


def run(
    spark: SparkSession,
    options: FeedOptions,
    progress: Progress | None = None,
    stop: Wakeup | None = None,
) -> Report:
    """Follow the source until *stop* is set or Ctrl-C is pressed; with *once* up to now.

    Both end it after the segment and the batch under way.

    Each change is written to the files once, and applied to a store in effect once; those of a key
    in order. A feed is never done: ``resume`` continues it, also after *once*. While a store does
    not answer it retries without limit, unless *once* is given.

    Raises:
        UsageError: The folder or the arguments cannot be used, or source or target is another store
            than before. Nothing was read.
        StoreError: The snapshot to begin at cannot be used. Nothing was read.
        Kip30Error: The source cannot be read. Nothing was read yet.
        KeyboardInterrupt: Ctrl-C was pressed. All is as after *stop*; ``report.json`` in the folder
            has the report, and the next call reports the same once more.
        OSError: The report cannot be written to the folder. The next call reports all.
    """
    options.check()
    stop = stop or Wakeup()
    options = resumed(options)
    arguments = options.arguments()
    if options.after is not None and not options.resume:
        _baseline(options, options.after)  # which raises before the folder is made
    with RunDirectory(options.out, FEED_JOB, arguments, resume=options.resume) as directory:
        with set_by_interrupt(stop):
            report = _Feed(spark, options, directory, progress or NoProgress(), stop).run()
            save_report(directory.path, report)
        if report.ending is not JobEnding.INCOMPLETE:
            _note_given(directory, report)
        return report


def _note_given(directory: RunDirectory, report: Report) -> None:
    """Note that *report* is given: the next one says the rest.

    Only now, when its file lasts. A call that Ctrl-C ended, or that is incomplete, does not get
    here, because its exit code tells nothing about findings.
    """
    manifest = directory.manifest
    manifest.reported, manifest.unreported = dict(report.totals), []
    directory.save()


def _baseline(options: FeedOptions, after: Path) -> Baseline:
    return Baseline(after, options.source, options.into, options.target)


class _Feed:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        options: FeedOptions,
        directory: RunDirectory,
        progress: Progress,
        stop: Wakeup,
    ) -> None:
        self._options = options
        self._run = directory
        self._progress = progress
        self._stop = stop
        self._journal = Journal(directory.path / _JOURNAL, options.layout)
        self._sink = self._new_sink(spark)
        self._consumer = JournalConsumer(spark, directory, self._journal, self._sink)
        # The applied position; None until the rows that an earlier process left are applied.
        self._applied: JournalPosition | None = None
        self._known = KnownKeys(directory.path / _KNOWN)
        self._tail: Tail | None = None
        self._backoff = Backoff()
        self._failed_jobs = 0

    def run(self) -> Report:
        scratch = self._run.path / _SCRATCH
        files = TailFiles(journal=self._journal, known=self._known, scratch=scratch)
        options, manifest = self._options, self._run.manifest
        try:
            to = manifest.target
            if options.target is not None:
                to = check_target(manifest, options.target, options.accept_stores)
            self._begin(files)
            tail = self._tail_of(files)
            if manifest.target not in {"", to}:  # the other store has nothing of what was applied
                tail.read_again()
            save_target(self._run, to)
            self._progress.begin(manifest)
            return self._follow(tail)
        finally:
            self._known.close()
            self._sink.close()

    def _new_sink(self, spark: SparkSession) -> Sink:
        target = self._options.target
        if target is None:
            return FilesSink(self._run.path / OUT)
        return StoreSink(
            target.config,
            self._run,
            slots(spark),
            overwrite=self._options.overwrite,
            rate=self._options.rate,
        )

    def _begin(self, files: TailFiles) -> None:
        """Make the first segment, which holds the position to begin at, or compare the source."""
        source = self._options.source
        place = place_of(source.config.resolve())
        if self._journal.segment >= 0:
            check_same(self._run.manifest.source, place, source.text)
            return
        self._run.manifest.source = {
            "endpoint": source.text,
            **place,
            "layout": source.layout.value,
            "under": source.under,
        }
        self._run.save()
        if self._options.after is None:
            files.known.fill(())
            begin_at(files, None)
            return
        baseline = _baseline(self._options, self._options.after)
        files.known.fill(baseline.states())
        files.known.reject(baseline.rejected())
        begin_at(files, baseline.position)

    def _tail_of(self, files: TailFiles) -> Tail:
        deletions = self._options.max_delete
        if deletions is None and self._options.target is None:
            deletions = ANY_NUMBER
        return Tail(
            files,
            self._open,
            settings=TailSettings(deletions=deletions, accepted_stores=self._options.accept_stores),
            stopped=lambda: self._stop.is_set,
            warn=self._progress.warn,
        )

    def _open(self, scratch: Path) -> ScanDriver:
        source = self._options.source
        found = open_source(
            source.config,
            source.view(scratch),
            self._run.manifest.source,
            request_seconds=self._options.request_seconds,
        )
        into = self._options.into
        return found if into is None else MappedScanner(found, into, source.under)

    def _follow(self, tail: Tail) -> Report:
        options = self._options
        self._tail = tail
        thread = TailThread(
            tail, self._stop, self._progress, once=options.once, interval=options.interval
        )
        try:
            reason = self._batches(thread)
        finally:
            self._stop.set()
            thread.close()
            self._note_facts()
        if thread.error is not None:
            self._raise_early(thread.error)
            reason = str(thread.error)
        return self._report(reason)

    def _batches(self, thread: TailThread) -> str:
        """Apply the changes that the tail reads; return why that ended, empty if all is applied."""
        due = 0.0
        while True:
            thread.news.clear()
            is_last = thread.has_ended
            if is_last or not self._pause(due):
                due = time.monotonic() + self._batch_seconds
                if reason := self._batch():
                    return reason
            if self._stop.is_set:
                return "stopped: --resume continues"
            if is_last and not self._consumer.backlog:
                return ""
            self._progress.feed(self._state())
            wait = self._pause(due) if self._consumer.backlog else self._options.interval
            self._stop.wait(wait, thread.news)

    def _pause(self, due: float) -> float:
        """Return how long to wait for news when the next batch is *due*; a full one is at once."""
        if self._consumer.backlog >= MOST_SEGMENTS:
            return 0.0
        return max(due - time.monotonic(), 0.0)

    @property
    def _batch_seconds(self) -> float:
        if self._options.batch_seconds is not None:
            return self._options.batch_seconds
        return _FILES_SECONDS if self._options.target is None else 0.0

    def _batch(self) -> str:
        """Apply a batch of what is in the journal; return why the run must end, if it must."""
        position, newest = self._journal.position, self._journal.segment
        if not self._consumer.backlog:
            return ""
        try:
            self._note_source()
            self._consumer.apply_batch()
        except (UnavailableError, JobFailedError) as error:
            return self._failed(error)
        except Kip30Error as error:
            return str(error)
        if self._consumer.segment >= newest:
            self._applied = position
        self._failed_jobs = 0
        self._backoff.reset()
        return ""

    def _failed(self, error: Exception) -> str:
        """Wait before a retry of the batch and return "", or return why there is none."""
        self._failed_jobs += isinstance(error, JobFailedError)
        if self._options.once or self._failed_jobs >= _FAILED_JOBS:
            return str(error)
        self._progress.warn(f"a batch is applied again soon: {error}")
        self._stop.wait(self._backoff.next())
        return ""

    def _state(self) -> FeedProgress:
        newest = self._journal.position
        assert newest is not None  # noqa: S101  `_begin` made a segment
        rows = self._consumer.rows
        waiting = max(0, newest.rows - rows)
        position = self._applied if waiting else newest
        reached = position.reached if position and position.reached else self._run.manifest.created
        return FeedProgress(rows, waiting, max(0.0, time.time() - reached), newest.gaps)

    def _note_source(self) -> None:
        source, position = self._run.manifest.source, self._journal.position
        if self._tail is not None and self._tail.completeness is not None:
            source["completeness"] = self._tail.completeness.value
        if position is not None and position.at is not None:
            source["position"] = list(position.at)

    def _note_facts(self) -> None:
        self._note_source()
        manifest, state = self._run.manifest, self._state()
        manifest.counts |= {
            "waiting": state.waiting,
            "lag_seconds": round(state.seconds),
            "gaps": state.gaps,
            "rejected_records": self._known.count_rejected(),
        }
        self._run.save()

    def _raise_early(self, error: BaseException) -> None:
        """Raise *error* if it is none of the store's, or if nothing was read."""
        is_expected = isinstance(error, Kip30Error) and not isinstance(error, ConfigError)
        if not is_expected or self._journal.segment == 0:
            raise error

    def _report(self, reason: str) -> Report:
        counts, totals = self._counts()
        ending = JobEnding.FINDINGS if any(map(counts.get, _TO_LOOK_AT)) else JobEnding.DONE
        if reason:
            ending = JobEnding.INCOMPLETE
        findings = [*self._rejected(), *self._run.manifest.unreported][:MOST_FINDINGS]
        report = Report.of(self._run.manifest, ending, findings, reason)
        return replace(report, counts=counts, totals=totals)

    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the counts that no report has had yet, with the present state, and the totals."""
        manifest = self._run.manifest
        present = {name: number for name, number in manifest.counts.items() if name in _PRESENT}
        totals = {
            name: number
            for name, number in manifest.counts.items()
            if name not in {*_PRESENT, *POSITIONS}
        }
        new = {name: number - manifest.reported.get(name, 0) for name, number in totals.items()}
        return new | present, totals

    def _rejected(self) -> Iterator[Mapping[str, str]]:
        """Yield the records of the source that could not be read: the target's stay as they are."""
        for one in self._known.first_rejected(MOST_FINDINGS):
            yield {"key": one.shown_key, "outcome": "rejected", "detail": one.reason}
