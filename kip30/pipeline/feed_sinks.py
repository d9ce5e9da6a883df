"""Where the rows of a journal go: files by day, or a store. Both take a batch again unharmed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kip30.errors import FencedError, UnavailableError
from kip30.pipeline.report import MOST_FINDINGS
from kip30.pipeline.store_config import StoreConfig
from kip30.records import Condition

_FEW = 2_000
"""So many changes are applied by one task: to open the store costs more than to write them."""

_OUTCOMES = "outcome string, number long, key string, detail string"
_OUTCOME_COLUMNS = ("outcome", "number", "key", "detail")
_FINE = frozenset({"written", "same"})


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch.

    Attributes:
        counts: How many keys had each outcome.
        findings: Keys to look at, each with what is the matter.
    """

    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    findings: Sequence[Mapping[str, str]] = ()


class Sink(Protocol):
    """Takes batches in order. The last one may come again, with the same rows."""

    def write(self, rows: DataFrame, batch: int, number: int) -> Written:
        """Write *rows* of the journal, of which there are *number*.

        Raises:
            Kip30Error: They are not all written: the batch has to come again.
        """
        ...


class FilesSink:
    """Writes ``out/day=D/batch=N``: D is the day on which a change was read, in UTC."""

    def __init__(self, folder: Path) -> None:
        """Write into *folder*; what a process that was killed left unfinished is deleted."""
        self._folder = folder
        for left in folder.glob(".spark-staging-*"):
            rmtree(left, ignore_errors=True)

    def write(self, rows: DataFrame, batch: int, number: int) -> Written:
        """Write *rows* into the folders of *batch*, in place of what is there.

        A folder appears by one rename, with all of its rows in the order of the journal.
        """
        del number
        columns = {"day": f.to_date("time"), "batch": f.lit(batch)}
        placed = rows.coalesce(1).withColumns(columns).sortWithinPartitions("day", "number")
        writer = placed.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.option("compression", "zstd").partitionBy("day", "batch").parquet(str(self._folder))
        return Written()


class StoreSink:
    """Applies the last change of each key to a store."""

    def __init__(self, target: StoreConfig, run: str, slots: int) -> None:
        """Write to *target*, in up to *slots* tasks at a time.

        Args:
            target: The store.
            run: The id of the run, which makes a write that is repeated the same write.
            slots: How many tasks run at a time.
        """
        self._target = target
        self._run = run
        self._slots = slots

    def write(self, rows: DataFrame, batch: int, number: int) -> Written:
        """Write the last change of each key.

        Raises:
            UnavailableError: The store did not answer for each of them.
            FencedError: Another process applies this run's changes.
        """
        del batch
        last = last_changes(rows, 1 if number <= _FEW else self._slots)
        found = last.mapInArrow(_writing(self._target, self._run), _OUTCOMES)
        return _judged(found.collect())


def last_changes(rows: DataFrame, tasks: int) -> DataFrame:
    """Return the last change of each key in *tasks* partitions; null deletes the key."""
    changes = rows.where(f.col("kind") == "change")
    state = f.struct("value", "number")
    last = f.max_by(state, "number").alias("last")
    # In a stream Spark would make 200 partitions, and open the store in each.
    found = changes.repartition(tasks, "key").groupBy("key").agg(last)
    return found.select("key", "last.value", "last.number")


def _writing(
    target: StoreConfig, run: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        resolved = target.resolve()
        backend = None
        try:
            for batch in batches:
                if backend is None:
                    backend = resolved.open()
                seconds = resolved.context.operation_timeout_seconds
                yield _outcomes(_replace(backend, run, seconds, batch.to_pylist()))
        finally:
            if backend is not None:
                backend.close()

    return write


def _replace(
    backend: Any, run: str, seconds: float, rows: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str, str]]:
    """Write *rows*, and return key, outcome and reason of each."""
    from kip30.pipeline.applier import Applier, Replacement  # noqa: PLC0415  as only stores need it

    replacements = [
        Replacement(row["key"], row["value"], _source(row), Condition.ANY) for row in rows
    ]
    applied = Applier(backend, run, seconds=seconds).replace(replacements)
    return [(one.key, one.outcome.value, one.detail) for one in applied]


def _source(row: Mapping[str, Any]) -> str:
    """Return what tells one change of a key from the others: its number in the journal."""
    return str(row["number"])


def _outcomes(applied: Sequence[tuple[str, str, str]]) -> pa.RecordBatch:
    counts = Counter(outcome for _, outcome, _ in applied)
    rows: list[tuple[Any, ...]] = [
        (outcome, number, None, None) for outcome, number in counts.items()
    ]
    rows += [(outcome, 1, key, why) for key, outcome, why in applied if outcome not in _FINE]
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(_OUTCOME_COLUMNS)
    kinds = (pa.string(), pa.int64(), pa.string(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(_OUTCOME_COLUMNS))


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
        raise FencedError("another process applies the changes of this run")
    if counts["unknown"]:
        raise UnavailableError(f"{counts['unknown']} changes may not be written: {why}")
    return Written(counts, findings)
