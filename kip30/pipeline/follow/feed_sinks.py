"""Sinks of the rows of a journal: files by day, or a store. Writing a batch again is safe."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kip30.errors import NotElectedError, StoreError, UnavailableError
from kip30.pipeline.run.directory import RunDirectory, sync, sync_folder
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.spark.bulk_write import BulkWrite, replace_changes
from kip30.pipeline.spark.wave_files import local_path
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.write.run_leader import RunLeader, drive

OUT = "out"
"""The folder of the files of a feed."""

_MOST_IN_ONE_TASK = 2_000
"""Changes that one task applies: opening the store costs more than writing them."""


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a batch.

    Attributes:
        counts: How many keys had each outcome.
        findings: Keys to look at, each with the problem.
    """

    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    findings: Sequence[Mapping[str, str]] = ()


class Sink(Protocol):
    """Takes batches in order. The last one may come again, with the same rows."""

    def write(self, rows: DataFrame, batch: int, number: int) -> Written:
        """Write *rows* of the journal, of which there are *number*.

        Raises:
            Kip30Error: They are not all written: the batch must be sent again.
        """
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


class FilesSink:
    """Writes ``out/day=D/batch=N``: D is the day on which a change was read, in UTC."""

    def __init__(self, folder: Path) -> None:
        """Write into *folder*; what a process that was killed left unfinished is deleted."""
        self._folder = folder
        for left in folder.glob(".spark-staging-*"):
            rmtree(left, ignore_errors=True)

    def write(self, rows: DataFrame, batch: int, number: int) -> Written:
        """Write *rows* into the folders of *batch*, replacing their content.

        A folder appears by one rename, with all of its rows in the order of the journal. A crash of
        the machine does not take it back: the journal forgets the rows now.

        Raises:
            StoreError: The folders cannot be written.
        """
        del number
        columns = {"day": f.to_date("time"), "batch": f.lit(batch)}
        placed = rows.coalesce(1).withColumns(columns).sortWithinPartitions("day", "number")
        writer = placed.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer = writer.option("compression", "zstd").partitionBy("day", "batch")
        writer.parquet(local_path(self._folder))
        try:
            for written in self._folder.glob(f"day=*/batch={batch}"):
                sync_folder(written)
            sync(self._folder)
        except OSError as error:
            raise StoreError(f"{self._folder} cannot be written: {error}") from error
        return Written()

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class StoreSink:
    """Applies the last change of each key to a store."""

    def __init__(
        self,
        target: StoreConfig,
        directory: RunDirectory,
        slots: int,
        *,
        overwrite: bool,
        rate: float | None = None,
    ) -> None:
        """Write to *target*, in up to *slots* tasks at a time.

        Args:
            target: The store.
            directory: The run, whose id makes a write that is repeated the same write; its manifest
                has the identity that *target* must have.
            slots: How many tasks run at a time.
            overwrite: Whether to replace and delete what programs wrote, too.
            rate: How many writes a second all tasks together may do; None: any number.
        """
        self._rate = rate
        self._change = partial(replace_changes, only_own=not overwrite)
        self._target = target
        self._directory = directory
        self._slots = slots
        self._held = ExitStack()
        self._leader: RunLeader | None = None

    def write(self, rows: DataFrame, batch: int, number: int) -> Written:
        """Write the last change of each key.

        Raises:
            UnavailableError: The store did not answer for each of them, or another process drives
                the run.
            UsageError: *target* is another store by now. Nothing was written to it.
        """
        del batch
        tasks = 1 if number <= _MOST_IN_ONE_TASK else self._slots
        try:
            with self._driving().writing() as fence:
                writing = BulkWrite(
                    target=self._target,
                    run=self._directory.manifest.run,
                    fence=fence,
                    rate=self._rate,
                    slots=tasks,
                )
                last = last_changes(rows, tasks)
                return _judged(writing.outcomes(last, self._change).collect())
        except NotElectedError as error:
            raise UnavailableError(str(error)) from error

    def close(self) -> None:
        """Let another process drive the run."""
        self._leader = None
        self._held.close()

    def _driving(self) -> RunLeader:
        if self._leader is None:
            manifest = self._directory.manifest
            driving = drive(self._target, manifest.run, manifest.target)
            self._leader = self._held.enter_context(driving)
        return self._leader


def last_changes(rows: DataFrame, tasks: int) -> DataFrame:
    """Return the last change of each key in *tasks* partitions; null deletes the key."""
    changes = rows.where(f.col("kind") == "change")
    state = f.struct("value", "number")
    last = f.max_by(state, "number").alias("last")
    # Spark would choose another number of partitions, and open the store in each.
    found = changes.repartition(tasks, "key").groupBy("key").agg(last)
    # The number in the journal tells one change of a key from the others.
    source = f.col("last.number").cast("string").alias("source")
    return found.select("key", "last.value", source)


def _judged(found: Sequence[Any]) -> Written:
    counts = Counter[str]()
    findings: list[dict[str, str]] = []
    for outcome, number, key, why in found:
        if key is None:
            counts[outcome] += number
        elif len(findings) < MOST_FINDINGS:
            findings.append({"key": key, "outcome": outcome, "detail": why})
    why = next((one["detail"] for one in findings if one["outcome"] == "unknown"), "")
    if counts["fenced"]:
        raise UnavailableError("the leadership of the run was lost: it is applied again")
    if counts["unknown"]:
        raise UnavailableError(f"{counts['unknown']} changes may not be written: {why}")
    return Written(counts, findings)
