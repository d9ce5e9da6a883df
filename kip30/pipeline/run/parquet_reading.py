"""Reading Parquet files, each on the calling thread.

Arrow's own threads are not used. A process that ends soon after they have worked may abort: its
work is done, but its exit status is that of SIGABRT (https://github.com/apache/arrow/issues/34314;
7 of 450 short programs did). A task of Spark has one processor anyway, and each thread takes
memory.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def parsed(data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of the file whose content is *data*, with all columns or some.

    Raises:
        pa.ArrowException, OSError: It is no Parquet, or a page differs from its checksum.
    """
    with _opened(pa.BufferReader(data)) as file:
        return file.read(None if columns is None else list(columns), use_threads=False)


def batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the file *path*, some at a time.

    Raises:
        pa.ArrowException, OSError: As `parsed`, or it cannot be read.
    """
    names = None if columns is None else list(columns)
    with _opened(path) as file:
        yield from file.iter_batches(columns=names, use_threads=False)


def read_columns(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return the *columns* of the file *path*; raises as `batches` does."""
    with _opened(path) as file:
        return file.read(list(columns), use_threads=False)


def rows_of(path: Path) -> int:
    """Return how many rows the file *path* has; raises as `bytes_of` does."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def bytes_of(path: Path, columns: Sequence[str]) -> int:
    """Return how many bytes the *columns* of the file *path* have, before compression.

    Raises:
        pa.ArrowException, OSError: As `parsed`, or it cannot be read.
    """
    with _opened(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    wanted = set(columns)
    return sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in wanted
    )


def _opened(source: Path | pa.BufferReader) -> pq.ParquetFile:
    # By default Arrow reads ahead, on threads of its own.
    return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
