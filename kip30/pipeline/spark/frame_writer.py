"""Writing a DataFrame: ``df.write.format("kip30").mode("append").option("config", FILE).save()``.

Its columns are *key* and *value*. Options: *config*, a properties file (else *store*, a
configuration in the words of `StoreConfig`); *on_conflict*: keep, replace or fail, as of a restore.

There is no run with a folder and no driver that could be fenced: a write that failed is repeated as
a whole, and finds what it wrote before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NoReturn
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType
from typing_extensions import override

from kip30.errors import UnavailableError, UsageError
from kip30.pipeline.run.job_errors import KeysNotWrittenError
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.spark.bulk_write import BulkWrite, Decided, SourceRow, write_rows
from kip30.pipeline.spark.source import FORMAT, store_of
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.write.outcomes import OnConflict, WriteOutcome

_OPTIONS = {"config", "store", "on_conflict"}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "key": (StringType,),
    "value": (BinaryType, StringType),
}
_COLUMNS = "key (string) and value (binary or string)"
_TO_LOOK_AT = (WriteOutcome.CONFLICT.value, WriteOutcome.REJECTED.value)
_STATE_BYTES = 8


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Parsed options of a write.

    Attributes:
        config: The store.
        on_conflict: See `OnConflict`.
    """

    config: StoreConfig
    on_conflict: OnConflict = OnConflict.KEEP

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Return the meaning of *options*, whose names Spark compares without regard to case.

        Raises:
            UsageError: One is unknown or wrong, or no store is named. Nothing was sent.
            ConfigError: The configuration of the store is wrong. Nothing was sent.
        """
        if unknown := {*map(str.lower, options)} - _OPTIONS:
            raise UsageError(
                f"a write with the format {FORMAT} has no option {', '.join(sorted(unknown))};"
                f" it has {', '.join(sorted(_OPTIONS))}"
            )
        wanted = options.get("on_conflict", OnConflict.KEEP.value)
        try:
            on_conflict = OnConflict(wanted)
        except ValueError:
            names = ", ".join(one.value for one in OnConflict)
            raise UsageError(f"on_conflict={wanted}: give one of {names}") from None
        config = store_of(options)
        config.resolve()
        return cls(config, on_conflict)


def refuse_overwrite() -> NoReturn:
    """Refuse the mode *overwrite*, which would delete the keys that the DataFrame has not.

    Raises:
        UsageError: Always. Nothing was sent.
    """
    raise UsageError(
        f"the format {FORMAT} deletes nothing: write with mode('append'), and with"
        " option('on_conflict', 'replace') to overwrite keys that are there"
    )


def check_columns(schema: StructType) -> None:
    """Require the columns of a write.

    Raises:
        UsageError: *schema* has others, or one of another type. Nothing was sent.
    """
    found = {one.name: one.dataType for one in schema.fields}
    fits = found.keys() == _TYPES.keys() and len(schema.fields) == len(found)
    if not fits or not all(isinstance(found[name], kinds) for name, kinds in _TYPES.items()):
        shown = ", ".join(f"{one.name} ({one.dataType.simpleString()})" for one in schema.fields)
        raise UsageError(
            f"the format {FORMAT} writes the columns {_COLUMNS}, and this DataFrame has {shown}:"
            " choose them with select() and cast()"
        )


@dataclass(frozen=True)
class WriteResult(WriterCommitMessage):
    """Result of one task, or of all together.

    Attributes:
        counts: How many keys had each outcome.
        findings: Up to `MOST_FINDINGS` conflicts and rejected keys.
    """

    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    findings: Sequence[Decided] = ()

    def __add__(self, other: "WriteResult") -> "WriteResult":
        """Return both together."""
        counts = Counter(self.counts) + Counter(other.counts)
        return WriteResult(counts, (*self.findings, *other.findings)[:MOST_FINDINGS])

    @classmethod
    def of(cls, decided: Sequence[Decided]) -> "WriteResult":
        """Return the result of *decided*."""
        findings = [one for one in decided if one.outcome in _TO_LOOK_AT]
        return cls(Counter(one.outcome for one in decided), tuple(findings[:MOST_FINDINGS]))

    def text(self) -> str:
        """Return the counts, and a line for each finding."""
        counts = ", ".join(f"{name} {number}" for name, number in sorted(self.counts.items()))
        lines = [f"{one.outcome}\t{one.key}\t{one.detail}" for one in self.findings]
        more = sum(self.counts.get(name, 0) for name in _TO_LOOK_AT) - len(lines)
        return "\n".join([counts, *lines, *([f"and {more} more"] if more else [])])


class Kip30Writer(DataSourceArrowWriter):
    """One write of a DataFrame. It travels to the tasks, so that all of them are of one run."""

    def __init__(self, options: WriteOptions) -> None:
        """Write as *options* say."""
        self._options = options
        self._run = uuid4().hex

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:  # type: ignore[override]  # as PySpark's own
        """Write the rows of one task. Spark may call it again: the same rows are the same writes.

        Raises:
            UnavailableError: The store did not answer for each key. Some may be written.
            KeysNotWrittenError: A key has another value, and the option is to fail. The other keys
                of its batch, and those before them, are written.
            Kip30Error: The store cannot be used.
        """
        result = WriteResult()
        writing = BulkWrite(target=self._options.config, run=self._run, fence=None)
        replaces = self._options.on_conflict is OnConflict.REPLACE
        with ExitStack() as opened:
            applier = None
            for batch in iterator:  # a task without rows does not open the store
                applier = applier or opened.enter_context(writing.applier())
                decided = write_rows(applier, _rows(batch), replaces=replaces)
                _require_certain(decided)
                result += WriteResult.of(decided)
                self._stop_at_conflict(result)
        return result

    @override
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """End the write, which has written all that it could.

        Raises:
            KeysNotWrittenError: Keys were not written: the message names them. All others are.
        """
        result = WriteResult()
        for message in messages:
            assert isinstance(message, WriteResult)  # noqa: S101  what `write` returned
            result += message
        if result.findings:
            raise KeysNotWrittenError(f"all but these keys are written: {result.text()}")

    def _stop_at_conflict(self, result: WriteResult) -> None:
        is_met = result.counts.get(WriteOutcome.CONFLICT.value, 0)
        if is_met and self._options.on_conflict is OnConflict.FAIL:
            raise KeysNotWrittenError(f"a task stopped at keys with other values: {result.text()}")


def _require_certain(decided: Sequence[Decided]) -> None:
    lost = [one for one in decided if one.outcome == WriteOutcome.UNKNOWN.value]
    if lost:
        raise UnavailableError(
            f"{len(lost)} keys may not be written, such as {lost[0].key}: {lost[0].detail}"
        )


def _rows(batch: pa.RecordBatch) -> list[SourceRow]:
    columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("key", "value")]
    return [_row(key, value) for key, value in zip(*columns, strict=True)]


def _row(key: str | None, value: bytes | str | None) -> SourceRow:
    rejected = WriteOutcome.REJECTED.value
    if key is None:
        return SourceRow("", b"", "", rejected, "the key is null")
    if value is None:
        return SourceRow(key, b"", "", rejected, "the value is null, and no key is deleted")
    data = value.encode() if isinstance(value, str) else value
    # A DataFrame has no versions. The data tells two states of a key apart.
    return SourceRow(key, data, blake2b(data, digest_size=_STATE_BYTES).hexdigest(), None, "")
