"""Comparing two small sides in one task of Spark, which reads their files and writes the result.

Spark's plan of a comparison, with the code that it generates, costs seconds, whatever the number of
rows. The rule is in `table_comparison`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from kip30.driver.scanning import Layout
from kip30.pipeline.compare.comparison import LEFT, RIGHT
from kip30.pipeline.compare.rechecking import Stores, settled_batches
from kip30.pipeline.compare.side_files import SideFiles
from kip30.pipeline.compare.table_comparison import compared
from kip30.pipeline.run.checksums import checksum
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.scan_files import FILE_BYTES, slices, write_checked
from kip30.pipeline.spark.session import ROWS_OF_PARTITION
from kip30.pipeline.spark.wave_files import FolderTasks, write_in_tasks

_MOST_FILES = 64
_MOST_BYTES = 64 * 1024 * 1024
"""Keys of kip30's storage are short, paths of other programs may not be."""
_COLUMNS = "name string, size bigint, checksum string"
_BATCH = 10_000

Sides = Mapping[str, SideFiles]


def fit_one_task(sides: Sides, rows: int) -> bool:
    """Return whether one task can hold *sides*, which have *rows* rows.

    Raises:
        StoreError: A file cannot be read.
    """
    files = sum(len(one.names) for one in sides.values())
    if rows > ROWS_OF_PARTITION or files > _MOST_FILES:
        return False
    return sum(one.bytes() for one in sides.values()) <= _MOST_BYTES


def compare_in_one_task(
    spark: SparkSession, run: RunDirectory, kind: str, sides: Sides, stores: Stores
) -> tuple[DataFile, ...]:
    """Compare *sides*, read again what differs in *stores*, and write it into the folder *kind*.

    The task has read its files back. If nothing differs there is one without rows.
    """
    sides, stores = dict(sides), dict(stores)

    def write(_number: int, folder: Path) -> Iterator[tuple[str, int, str]]:
        return _written(sides, stores, folder)

    folder = run.wave_folder(kind, 0)
    rows = write_in_tasks(spark, folder, FolderTasks(1, write, _COLUMNS))
    below = folder.relative_to(run.path)
    return tuple(DataFile(str(below / name), size, found) for name, size, found in rows)


def _written(sides: Sides, stores: Stores, folder: Path) -> Iterator[tuple[str, int, str]]:
    raw = {name for name, files in sides.items() if files.layout is Layout.RAW}
    found = compared(sides[LEFT].table(), sides[RIGHT].table(), raw=raw)
    batches = found.to_batches(max_chunksize=_BATCH)
    settled = pa.Table.from_batches(settled_batches(batches, stores), found.schema)
    for table in list(slices(settled, FILE_BYTES)) or [settled]:
        name, data = write_checked(table, folder)
        yield name, len(data), checksum(data)
