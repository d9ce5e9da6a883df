"""The journal of a feed: Parquet files, each with some changes and the position behind them.

The position is in the metadata of the segment itself, and a segment appears by one rename, with the
checksum of its content in its name. So these never disagree, wherever a process is killed.
"""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kip30.driver.scanning import Layout
from kip30.errors import StoreError
from kip30.pipeline.follow.journal_rows import (
    JournalPosition,
    JournalRow,
    JournalRowKind,
    journal_schema,
)
from kip30.pipeline.follow.known_keys import Known, stamp
from kip30.pipeline.run.checksums import checksum
from kip30.pipeline.run.directory import sync, write_whole
from kip30.pipeline.run.parquet_reading import parsed

_POSITION = b"kip30.mark"
"""The key of the position in the metadata of a segment."""
_REACHED = "reached.json"


class Journal:
    """The journal in one folder. One thread appends; others may look at the attributes.

    Attributes:
        schema: The columns.
        segment: The number of the last segment, which is always there; -1: there is none.
        position: How far the journal is; None as long as there is no segment.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        """Open the journal in *folder*, or begin one.

        Raises:
            StoreError: The last segment is damaged, and nothing was noted after it.
        """
        self._folder = folder
        self.schema: pa.Schema = journal_schema(layout)
        folder.mkdir(mode=0o700, exist_ok=True)
        # By number. The thread that removes segments drops them, another one looks them up.
        self._files = {_number_of(file): file for file in folder.glob("[0-9]*.parquet")}
        segments = sorted(self._files)
        self.segment: int = segments[-1] if segments else -1
        self.position: JournalPosition | None = None
        # The first segment that may still be there. The thread that removes segments writes it.
        self._first = segments[0] if segments else 0
        if segments:
            self.position = self._noted() or _position_of(self._read(self.segment))

    def file_of(self, segment: int) -> Path:
        """Return the file of *segment*.

        Raises:
            StoreError: It is not there.
        """
        try:
            return self._files[segment]
        except KeyError:
            raise StoreError(f"segment {segment} is missing in {self._folder}") from None

    def rows_of(self, segment: int) -> int:
        """Return how many rows *segment* has. Its checksum is verified: Spark notices no damage.

        Raises:
            StoreError: It is not there, or damaged.
        """
        rows: int = pq.read_metadata(pa.BufferReader(self._whole(segment))).num_rows
        return rows

    def append(self, entries: Sequence[JournalRow], position: JournalPosition) -> None:
        """Make *entries* last, with the *position* behind them, whose numbers are filled in."""
        rows, gaps = (self.position.rows, self.position.gaps) if self.position else (0, 0)
        found = sum(one.kind is JournalRowKind.GAP for one in entries)
        position = replace(position, rows=rows + len(entries), gaps=gaps + found)
        number, data = self.segment + 1, _encoded(self._table(entries, rows, position))
        file = self._folder / f"{number:012}-{checksum(data)}.parquet"
        draft = self._folder / ".draft.parquet"
        _write(draft, data)
        draft.replace(file)
        sync(self._folder)
        self._files[number] = file
        self.position, self.segment = position, self.segment + 1

    def note(self, position: JournalPosition) -> None:
        """Remember that there is nothing between the position so far and *position*.

        A crash may forget this: the changes up to *position* are read once more then, and are none.
        """
        if self.position is not None:
            position = replace(position, rows=self.position.rows, gaps=self.position.gaps)
        text = json.dumps({"segment": self.segment, "mark": position.to_json()})
        write_whole(self._folder / _REACHED, f"{checksum(text.encode())}\n{text}")
        self.position = position

    def touch(self, reached: float) -> None:
        """Remember, as long as this process lives, that the last position was still the present."""
        if self.position is not None:
            self.position = replace(self.position, reached=reached)

    def states(self, segment: int) -> list[Known]:
        """Return what *segment*, which is still there, says of keys.

        Raises:
            StoreError: It is not there, or damaged.
        """
        table = self._read(segment, ["key", "version", "modified", "kind"])
        return [
            _known(row) for row in table.to_pylist() if row["kind"] == JournalRowKind.CHANGE.value
        ]

    def remove_before(self, segment: int) -> None:
        """Delete all segments before *segment* but the last one, which has the position."""
        end = min(segment, self.segment)
        for number in range(self._first, end):
            if (file := self._files.get(number)) is not None:
                file.unlink(missing_ok=True)
                del self._files[number]
        self._first = max(self._first, end)

    def _read(self, segment: int, columns: list[str] | None = None) -> pa.Table:
        return parsed(self._whole(segment), columns)

    def _whole(self, segment: int) -> bytes:
        file = self.file_of(segment)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise StoreError(f"segment {file} cannot be read: {error}") from error
        if checksum(data) != file.stem.partition("-")[2]:
            raise StoreError(f"segment {file} is damaged: its checksum differs")
        return data

    def _noted(self) -> JournalPosition | None:
        """Return what was noted after the last segment; None if that is damaged, too."""
        with suppress(FileNotFoundError):
            written, _, text = (self._folder / _REACHED).read_bytes().partition(b"\n")
            if written == checksum(text).encode():
                found = json.loads(text)
                if found["segment"] == self.segment:
                    return JournalPosition.of_json(found["mark"])
        return None

    def _table(
        self, entries: Sequence[JournalRow], first: int, position: JournalPosition
    ) -> pa.Table:
        now = time.time_ns() // 1000
        rows = [_values(first + index, entry, now) for index, entry in enumerate(entries)]
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(self.schema)
        arrays = [
            _array(column, field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        schema = self.schema.with_metadata({_POSITION: position.to_json().encode()})
        return pa.Table.from_arrays(arrays, schema=schema)


def _number_of(file: Path) -> int:
    return int(file.stem.partition("-")[0])


def _encoded(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    encoded: bytes = buffer.getvalue().to_pybytes()
    return encoded


def _write(file: Path, data: bytes) -> None:
    """Write a file that lasts."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as new:
        new.write(data)
        new.flush()
        os.fsync(new.fileno())


def _position_of(segment: pa.Table) -> JournalPosition:
    return JournalPosition.of_json((segment.schema.metadata or {})[_POSITION])


def _values(number: int, entry: JournalRow, now: int) -> tuple[Any, ...]:
    row = entry.row
    if row is None:
        return number, entry.key, None, None, None, entry.order, entry.kind.value, now
    version = {"major": row.major, "minor": row.minor}
    return (
        *(number, entry.key, row.data, version, row.modified),
        *(entry.order, entry.kind.value, now),
    )


def _array(column: Sequence[Any], kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        texts = [one.decode() if isinstance(one, bytes) else one for one in column]
        return pa.array(texts, kind)
    return pa.array(column, kind)


def _known(row: dict[str, Any]) -> Known:
    key: str | bytes = row["key"]
    version = row["version"]
    raw = key.encode() if isinstance(key, str) else key
    if version is None:
        return Known(raw, None)
    return Known(raw, stamp(version["major"], version["minor"], row["modified"]))
