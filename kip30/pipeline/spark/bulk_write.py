"""Writing a DataFrame into a store: the work of each task, and its outcomes.

The outcomes are rows of their own: one for each key that was neither written nor equal, and for
each batch the number of keys of each outcome. They are files, so that a wave can be read back.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kip30.driver.records import Condition, Fence
from kip30.pipeline.run.directory import SHARED
from kip30.pipeline.run.job_errors import IncompleteRunError
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.run.scan_files import read_whole, slices
from kip30.pipeline.spark.tasks import task_numbers
from kip30.pipeline.spark.worker_host import naming_worker
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.write.applier import Applier
from kip30.pipeline.write.outcomes import Applied, NewRecord, Replacement, WriteOutcome
from kip30.pipeline.write.rate_limit import sharers

OUTCOMES = "outcome string, number long, key string, detail string"
"""The columns of outcomes. *key* is null in the rows that count; *number* is 1 in the others."""

SKIPPED = ("ephemeral", "directory")
"""Outcomes of records of other programs that have no place in the storage, and need none."""

_COLUMN_TYPES: dict[str, pa.DataType] = {
    "outcome": pa.string(),
    "number": pa.int64(),
    "key": pa.string(),
    "detail": pa.string(),
}
_SCHEMA = pa.schema(_COLUMN_TYPES)
_PART_BYTES = 4 * 1024 * 1024
"""Approximate number of bytes of a file that are written at a time."""

ALL_OUTCOMES = (*(outcome.value for outcome in WriteOutcome), *SKIPPED)
DELETED = "deleted"
"""The outcome of a change that deleted its key; *written* has the others."""
_UNREMARKABLE = frozenset({WriteOutcome.WRITTEN.value, WriteOutcome.SAME.value, DELETED, *SKIPPED})


Moves = Sequence[tuple[str, str]]


class SourceRow(NamedTuple):
    """A record to create. One that has an outcome already is not written, and may lack the rest."""

    key: str
    value: bytes
    source: str
    outcome: str | None
    detail: str


class Decided(NamedTuple):
    """The outcome of one row."""

    key: str
    outcome: str
    detail: str


Write = Callable[[Applier, pa.RecordBatch], Iterator[list[Decided]]]
"""Writes what a batch says, in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkWrite:
    """The data that the tasks of a job need to write into a store.

    Attributes:
        target: The store.
        run: The id of the run, which makes a write of a task that runs again the same write.
        fence: Refuses writes of a driver that another one has replaced; None: nothing does.
        rate: How many writes a second all tasks together may do; None: as many as they can.
        slots: How many tasks run at a time at most.
    """

    target: StoreConfig
    run: str
    fence: Fence | None
    rate: float | None = None
    slots: int = 1

    def outcomes(self, rows: DataFrame, write: Write) -> DataFrame:
        """Return the outcomes of writing *rows*. Each action on the result writes again."""

        def apply(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return self._apply(found, write)

        if self.rate is not None:
            rows = rows.coalesce(sharers(self.rate, self.slots))
        return rows.mapInArrow(apply, OUTCOMES)

    @property
    def _share(self) -> float | None:
        """Number of writes a second that one task may do; None: as many as it can."""
        return None if self.rate is None else self.rate / sharers(self.rate, self.slots)

    @contextmanager
    def applier(self) -> Generator[Applier]:
        """Open the target for what one task writes in a with-block.

        Raises:
            Kip30Error: It cannot be opened. Nothing was written.
        """
        with naming_worker():
            resolved = self.target.resolve()
            backend = resolved.open()
        try:
            seconds = resolved.context.operation_timeout_seconds
            yield Applier(backend, self.run, seconds=seconds, fence=self.fence, rate=self._share)
        finally:
            backend.close()

    def _apply(self, found: Iterator[pa.RecordBatch], write: Write) -> Iterator[pa.RecordBatch]:
        with self.applier() as applier:
            for batch in found:
                yield from map(_batch, write(applier, batch))


def write_records(
    applier: Applier, batch: pa.RecordBatch, *, replaces: bool = False
) -> Iterator[list[Decided]]:
    """Create the records of *batch*, or with *replaces* write them over any state of the key.

    Its columns are the fields of `SourceRow`.
    """
    columns = (column.to_pylist() for column in batch.columns)
    yield write_rows(
        applier, [SourceRow(*one) for one in zip(*columns, strict=True)], replaces=replaces
    )


def write_rows(applier: Applier, rows: Sequence[SourceRow], *, replaces: bool) -> list[Decided]:
    """Create *rows*, or with *replaces* write them over any state of the key.

    Raises:
        AuthenticationError, StoreError, ClosedError, LifecycleError: See `Applier`.
    """
    records = [NewRecord(row.key, row.value, row.source) for row in rows if not row.outcome]
    if replaces:
        found = applier.replace([Replacement(*one, Condition.ANY) for one in records])
    else:
        found = applier.create(records)
    applied = [Decided(one.key, one.outcome.value, one.detail) for one in found]
    former = [Decided(row.key, row.outcome, row.detail) for row in rows if row.outcome]
    return applied + former


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecords:
    """Records of a snapshot, which tasks read from its files.

    Attributes:
        folder: That of the snapshot.
        files: The files of each task.
        under: The namespace with those below it that is read; empty: all.
        moves: See `moved_key`.
        doubles: Keys that several records would have by *moves*; none of these is written.
    """

    folder: Path
    files: Sequence[Sequence[DataFile]]
    under: str = ""
    moves: Moves = ()
    doubles: Collection[str] = ()

    def write(
        self, applier: Applier, numbers: pa.RecordBatch, *, replaces: bool = False
    ) -> Iterator[list[Decided]]:
        """Write the records of the tasks with *numbers*; *replaces* as in `write_records`."""
        for file in chain.from_iterable(self.files[number] for number in task_numbers([numbers])):
            for part in slices(read_whole(self.folder, file), _PART_BYTES):
                yield write_rows(applier, self._rows(part), replaces=replaces)

    def _rows(self, part: pa.Table) -> list[SourceRow]:
        names = ("key", "value", "version", "rejected", "record", "prefix")
        columns: list[list[Any]] = [part.column(name).to_pylist() for name in names]
        return [
            self._row(key, value, f"{version['major']}.{version['minor']}", rejected)
            for key, value, version, rejected, record, prefix in zip(*columns, strict=True)
            if self._is_inside(key if rejected is None else None, record, prefix)
        ]

    def _is_inside(self, key: str | None, record: bytes | None, prefix: bytes | None) -> bool:
        """Return whether a row has, or if it is rejected (None) may hide, a record to write."""
        if not self.under:
            return True
        below = f"{self.under}/".encode()
        known = record if key is None else key.encode()
        if known is not None and known.startswith(below):
            return True
        return prefix is not None and (prefix.startswith(below) or below.startswith(prefix))

    def _row(self, key: str, value: bytes, source: str, rejected: str | None) -> SourceRow:
        moved = moved_key(key, self.moves)
        if rejected is None and moved in self.doubles:
            rejected = f"another record would have the key {moved}, too"
        if rejected is None:
            return SourceRow(moved, value, source, None, "")
        return SourceRow(key, value, source, WriteOutcome.REJECTED.value, rejected)


def moved_key(key: str, moves: Moves) -> str:
    """Return the key that the record at *key* has at the target; the first fit of *moves* counts.

    Each of *moves* is a namespace, and where its keys and those below it go; empty: all.
    """
    for old, new in moves:
        if not old or key.startswith(f"{old}/"):
            rest = key[len(old) + 1 :] if old else key
            return f"{new}/{rest}" if new else rest
    return key


def doubles_of(records: DataFrame, moves: Moves) -> frozenset[str]:
    """Return the keys that several of *records*, with the column *key*, would have by *moves*."""
    moved = f.udf(partial(moved_key, moves=moves), "string", useArrow=False)
    keys = records.groupBy(moved("key").alias("key")).count().where("count > 1")
    return frozenset(key for key, _ in keys.collect())


def replace_changes(
    applier: Applier, batch: pa.RecordBatch, *, only_own: bool
) -> Iterator[list[Decided]]:
    """Write or delete what *batch* says, over any state of the key or *only_own* ones.

    Its columns are key, value and source; a null value deletes the key.
    """
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    any_state = Condition.ANY
    changes = [Replacement(key, value, source, any_state) for key, value, source in rows]
    applied = applier.replace(changes, only_own=only_own)
    yield [_decided(*pair) for pair in zip(changes, applied, strict=True)]


def _decided(change: Replacement, applied: Applied) -> Decided:
    outcome = applied.outcome.value
    if change.data is None and applied.outcome is WriteOutcome.WRITTEN:
        outcome = DELETED
    return Decided(applied.key, outcome, applied.detail)


def outcome_counts(outcomes: DataFrame) -> dict[str, int]:
    """Return how many keys had each outcome."""
    counted = (
        outcomes.where(f.col("key").isNull())
        .groupBy("outcome")
        .agg(f.sum("number").alias("number"))
    )
    zero = dict.fromkeys(ALL_OUTCOMES, 0)
    return zero | {row["outcome"]: row["number"] for row in counted.collect()}


def check_whole(folder: Path, counts: Mapping[str, int], rows: int | None) -> None:
    """Require that *counts*, of the outcomes in the run in *folder*, are those of all *rows*.

    A lost file would be taken for outcomes that need no attention. None: the number is not known.

    Raises:
        IncompleteRunError: Some are missing.
    """
    found = sum(counts.values())
    if rows is not None and found != rows:
        raise IncompleteRunError(f"{folder} has the outcomes of {found} of {rows} rows: {SHARED}")


def outcome_findings(outcomes: DataFrame) -> list[dict[str, str]]:
    """Return up to `MOST_FINDINGS` keys that were neither written nor equal."""
    found = outcomes.where(f.col("key").isNotNull()).select("key", "outcome", "detail")
    return [row.asDict() for row in found.limit(MOST_FINDINGS).collect()]


def _batch(decided: Sequence[Decided]) -> pa.RecordBatch:
    counts = Counter(one.outcome for one in decided)
    rows: list[tuple[object, ...]] = [(*one, None, None) for one in counts.items()]
    rows += [
        (one.outcome, 1, one.key, one.detail) for one in decided if one.outcome not in _UNREMARKABLE
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
