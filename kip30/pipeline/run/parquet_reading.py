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


def _opened(source: Path | pa.BufferReader) -> pq.ParquetFile:
    # By default Arrow reads ahead, on threads of its own.
    return pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
