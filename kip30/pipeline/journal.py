"""The journal of a feed: Parquet files, each with some changes and the position behind them.

The position is in the metadata of the segment itself, and a segment appears by one rename. So the
two never disagree, wherever a process is killed.

Segments are in folders, the volumes. Spark remembers every file that it read for as long as it
reads one folder, so a feed goes on to the next volume from time to time and deletes the last one.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kip30.errors import StoreError
from kip30.pipeline.journal_rows import Entry, Kind, Mark, journal_schema
from kip30.pipeline.known_keys import Known, stamp
from kip30.pipeline.run_directory import sync, write_whole
from kip30.scanning import Layout

VOLUME_SEGMENTS = 1_000
_VOLUME_BYTES = 512 * 1024 * 1024
_MARK = b"kip30.mark"
_REACHED = "reached.json"
_MILLISECOND = 1_000_000


class Journal:
    """The journal in one folder. One thread appends; others may look at the attributes.

    Attributes:
        schema: The columns.
        segment: The number of the last segment; -1: there is none.
        volume: The number of the volume that it is in.
        mark: How far the journal is; None as long as there is no segment.
    """

    def __init__(
        self, folder: Path, layout: Layout, *, volume_segments: int = VOLUME_SEGMENTS
    ) -> None:
        """Open the journal in *folder*, or begin one.

        Raises:
            StoreError: The last segment is damaged.
        """
        self._folder = folder
        self.schema: pa.Schema = journal_schema(layout)
        self._volume_segments = volume_segments
        folder.mkdir(mode=0o700, exist_ok=True)
        self.segment: int = -1
        self.volume: int = 0
        self.mark: Mark | None = None
        self._stamp = 0
        if last := self._last():
            self.segment, self.volume = int(last.stem), int(last.parent.name)
            self._stamp = last.stat().st_mtime_ns // _MILLISECOND
            self.mark = self._noted() or _mark_of(last)

    def volume_folder(self, volume: int) -> Path:
        """Return the folder of a volume."""
        return self._folder / f"{volume:06}"

    def append(self, entries: Sequence[Entry], mark: Mark) -> None:
        """Make *entries* and the mark behind them last; the numbers of *mark* are filled in."""
        rows, gaps = (self.mark.rows, self.mark.gaps) if self.mark else (0, 0)
        found = sum(one.kind is Kind.GAP for one in entries)
        mark = replace(mark, rows=rows + len(entries), gaps=gaps + found)
        volume = self._next_volume()
        folder = self.volume_folder(volume)
        folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{self.segment + 1:012}.parquet"
        self._write(folder / f".{name}", self._table(entries, rows, mark))
        (folder / f".{name}").replace(folder / name)
        sync(folder)
        self.mark, self.volume, self.segment = mark, volume, self.segment + 1

    def note(self, mark: Mark) -> None:
        """Remember that there is nothing between the last mark and *mark*.

        A crash may forget this: the changes up to *mark* are read once more then, and are none.
        """
        if self.mark is not None:
            mark = replace(mark, rows=self.mark.rows, gaps=self.mark.gaps)
        text = json.dumps({"segment": self.segment, "mark": mark.to_json()})
        write_whole(self._folder / _REACHED, text)
        self.mark = mark

    def touch(self, reached: float) -> None:
        """Remember, as long as this process lives, that the last mark was still the present."""
        if self.mark is not None:
            self.mark = replace(self.mark, reached=reached)

    def states(self, segment: int) -> list[Known]:
        """Return what *segment*, which is still there, says of keys.

        Raises:
            StoreError: It is not there, or damaged.
        """
        files = list(self._folder.glob(f"*/{segment:012}.parquet"))
        if not files:
            raise StoreError(f"segment {segment} is missing in {self._folder}")
        table = pq.read_table(files[0], columns=["key", "version", "modified", "kind"])
        return [_known(row) for row in table.to_pylist() if row["kind"] == Kind.CHANGE.value]

    def remove_before(self, volume: int) -> None:
        """Delete all volumes before *volume*."""
        for folder in self._volumes():
            if int(folder.name) < volume:
                rmtree(folder, ignore_errors=True)

    def _next_volume(self) -> int:
        sizes = [file.stat().st_size for file in self.volume_folder(self.volume).glob("*.parquet")]
        is_full = len(sizes) >= self._volume_segments or sum(sizes) >= _VOLUME_BYTES
        return self.volume + is_full

    def _volumes(self) -> list[Path]:
        return sorted(one for one in self._folder.iterdir() if one.name.isdecimal())

    def _last(self) -> Path | None:
        files: Iterator[list[Path]] = (
            sorted(volume.glob("*.parquet")) for volume in reversed(self._volumes())
        )
        return next((found[-1] for found in files if found), None)

    def _noted(self) -> Mark | None:
        """Return what was noted after the last segment."""
        with suppress(FileNotFoundError):
            found = json.loads((self._folder / _REACHED).read_text())
            if found["segment"] == self.segment:
                return Mark.of_json(found["mark"])
        return None

    def _table(self, entries: Sequence[Entry], first: int, mark: Mark) -> pa.Table:
        now = time.time_ns() // 1000
        rows = [_values(first + index, entry, now) for index, entry in enumerate(entries)]
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(self.schema)
        arrays = [
            _array(column, field.type) for column, field in zip(columns, self.schema, strict=True)
        ]
        schema = self.schema.with_metadata({_MARK: mark.to_json().encode()})
        return pa.Table.from_arrays(arrays, schema=schema)

    def _write(self, file: Path, table: pa.Table) -> None:
        """Write a file that lasts. Spark reads files in the order of their times."""
        self._stamp = max(time.time_ns() // _MILLISECOND, self._stamp + 1)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as new:
            pq.write_table(table, new, compression="zstd")
            new.flush()
            moment = self._stamp * _MILLISECOND
            os.utime(file, ns=(moment, moment))
            os.fsync(new.fileno())


def _mark_of(file: Path) -> Mark:
    try:
        return Mark.of_json(pq.read_schema(file).metadata[_MARK])
    except (pa.ArrowException, ValueError, LookupError, TypeError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error


def _values(number: int, entry: Entry, now: int) -> tuple[Any, ...]:
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
