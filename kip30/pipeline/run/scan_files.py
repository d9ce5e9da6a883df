"""Parquet files of a scan: each is written, read back and compared by the task that scanned it.

Spark has no part in their bytes. A file has one group of rows, and is cut by its size, so a reader
needs about as much memory as `FILE_BYTES`, for values of any size.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from kip30.errors import StoreError
from kip30.pipeline.run.checksums import checksum
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.parquet_reading import parsed

FILE_BYTES = 8 * 1024 * 1024
"""At about this size of its rows, before compression, a file ends."""

_FEW_VALUES = ["kind", "owner", "rejected"]
_SEED = 42
_FLAGS = (bytes(4), bytes([1, 0, 0, 0]))
MEASURES = (pa.field("value_bytes", pa.int32()), pa.field("digest", pa.int64()))


class ScanFile(NamedTuple):
    """A file that was written and read back, and the measures of its rows.

    Attributes:
        name: That in its folder.
        size: In bytes.
        checksum: `checksums.checksum` of it.
        rows: How many records there are.
        total: The sum of their digests, as text, because it may have more than 64 bits.
        xor: The exclusive or of their digests.
        moving: How many were changed after the position.
        rejected: How many further rows are no records.
        value_bytes: How many bytes all values have.
    """

    name: str
    size: int
    checksum: str
    rows: int
    total: str
    xor: int
    moving: int
    rejected: int
    value_bytes: int


COLUMNS = (
    "name string, size bigint, checksum string, rows bigint, total string, xor bigint,"
    " moving bigint, rejected bigint, value_bytes bigint"
)
"""The columns of `ScanFile` for Spark."""


def write_scan(
    batches: Iterable[pa.RecordBatch], folder: Path, columns: Sequence[str] | None = None
) -> Iterator[ScanFile]:
    """Write *batches* of a scan into files of *folder*, and yield each once it is on the disk.

    A file has a name of this attempt alone: another one of the same task never meets it.

    Args:
        batches: With the columns of `kip30.pipeline.spark.schemas`.
        folder: It exists.
        columns: Those to keep; *path* is then named *key*. None: all, *value_bytes* and *digest*
            included.

    Raises:
        StoreError: A file does not hold what was written.
        OSError: The folder cannot be written.
    """
    for table in _tables(map(_with_digest, batches)):
        yield _written(table, folder, columns)


def write_checked(table: pa.Table, folder: Path) -> tuple[str, bytes]:
    """Write *table* into a new file of *folder*, and return its name and content once it is there.

    Raises:
        StoreError: The file does not hold what was written.
        OSError: The folder cannot be written.
    """
    path = folder / f"part-{uuid4().hex}.parquet"
    _write(path, table)
    data = path.read_bytes()
    try:
        found = parsed(data)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read back: {error}") from error
    if not found.equals(table):
        raise StoreError(f"{path} holds other rows than were written")
    return path.name, data


def read_whole(folder: Path, file: DataFile) -> pa.Table:
    """Return the rows of *file*, checked against its checksum.

    Raises:
        StoreError: It is missing, or not as it was written; the message names it.
    """
    path = folder / file.name
    try:
        data = path.read_bytes()
        if file.checksum == checksum(data):
            return parsed(data)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    raise StoreError(f"{path} is not as it was written: its checksum differs")


def slices(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Yield the rows of *table* in parts of about *size* bytes."""
    rows = max(1, len(table) * size // max(table.nbytes, 1))
    for first in range(0, len(table), rows):
        yield table.slice(first, rows)


def digests(
    keys: Sequence[bytes], values: Sequence[bytes | None], *, is_raw: bool
) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return for each record what `record_digests.with_digest` makes Spark compute."""
    hashed = xxhash.xxh64_intdigest
    found = [hashed(key, _SEED) for key in keys]
    if is_raw:
        found = [hashed(_FLAGS[v is None], seed) for v, seed in zip(values, found, strict=True)]
    pairs = zip(values, found, strict=True)
    found = [seed if value is None else hashed(value, seed) for value, seed in pairs]
    return np.array(found, dtype=np.uint64).view(np.int64)


def _with_digest(batch: pa.RecordBatch) -> pa.RecordBatch:
    is_raw = "path" in batch.schema.names
    keys: Any = batch.column("path" if is_raw else "key").cast(pa.binary()).to_pylist()
    values: Any = batch.column("value")
    sizes: Any = pc.fill_null(pc.binary_length(values), pa.scalar(0, pa.int32()))
    hashes = pa.array(digests(keys, values.to_pylist(), is_raw=is_raw))
    schema = pa.schema([*batch.schema, *MEASURES])
    return pa.RecordBatch.from_arrays([*batch.columns, sizes, hashes], schema=schema)


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        if size >= FILE_BYTES:
            yield pa.Table.from_batches(kept)
            kept, size = [], 0
    if kept:
        yield pa.Table.from_batches(kept)


def _written(table: pa.Table, folder: Path, columns: Sequence[str] | None) -> ScanFile:
    name, data = write_checked(table if columns is None else _only(table, columns), folder)
    return _measured(name, data, table)


def _only(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    names = ["key" if name == "path" else name for name in columns]
    return table.select(list(columns)).rename_columns(names)


def _write(path: Path, table: pa.Table) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            row_group_size=max(1, len(table)),
            use_dictionary=[name for name in _FEW_VALUES if name in table.schema.names],  # type: ignore[arg-type]  # a list of names, too
            write_page_checksum=True,
        )
        file.flush()
        os.fsync(descriptor)


def _measured(name: str, data: bytes, table: pa.Table) -> ScanFile:
    is_record: Any = table.column("rejected").is_null().to_numpy()
    hashes: Any = table.column("digest").to_numpy()[is_record]
    moving: Any = table.column("moving").to_numpy()[is_record]
    # In two halves, because the sum may have more than 64 bits.
    total = (int((hashes >> 32).sum()) << 32) + int((hashes & 0xFFFF_FFFF).sum())
    return ScanFile(
        name=name,
        size=len(data),
        checksum=checksum(data),
        rows=len(hashes),
        total=str(total),
        xor=int(np.bitwise_xor.reduce(hashes, initial=0)),
        moving=int(moving.sum()),
        rejected=len(table) - len(hashes),
        value_bytes=pc.sum(table.column("value_bytes")).as_py(),
    )
