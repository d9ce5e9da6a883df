"""The Parquet files of the waves of a run."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kip30.driver.scanning import Position, Span
from kip30.errors import StoreError
from kip30.pipeline.run.directory import SHARED, RunDirectory
from kip30.pipeline.run.manifest import DataFile, Digest, Wave
from kip30.pipeline.run.parquet_reading import batches
from kip30.pipeline.run.scan_files import COLUMNS, ScanFile, write_scan
from kip30.pipeline.run.wave_runner import WaveResult
from kip30.pipeline.spark.source import ScanOptions
from kip30.pipeline.spark.tasks import Row, run_tasks

SCANNED = "data"
"""The folder of the files of a scan."""

_COUNTS = ("moving", "rejected", "value_bytes")
_PATTERN = re.compile(r"[\\*?\[\]{}^]")


def write_files(run: RunDirectory, kind: str, wave: int, rows: DataFrame) -> tuple[DataFile, ...]:
    """Write *rows*, of a wave of *run*, into the folder *kind*, in one job of Spark.

    Raises:
        StoreError: A file cannot be read back, or there is none: the workers wrote elsewhere.
    """
    folder = run.wave_folder(kind, wave)
    rows.write.mode("overwrite").option("compression", "zstd").parquet(local_path(folder))
    files = run.files_in(folder)
    if not files:  # Spark writes one even if there are no rows, and takes none for no rows
        raise StoreError(f"the workers wrote no file into {folder}: {SHARED}")
    for file in files:
        _read_back(run.path / file.name)
    return files


def _read_back(file: Path) -> None:
    """Read *file*, whose pages Spark has written with a checksum each."""
    try:
        for _ in batches(file):
            pass
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{file} cannot be read back: {error}") from error


@dataclass(frozen=True, slots=True)
class ScanTasks:
    """The scan of a wave, by tasks.

    Attributes:
        options: The view.
        at: The position.
        spans: Those of each task.
    """

    options: ScanOptions
    at: Position
    spans: Sequence[Sequence[Span]]


def write_scanned(
    spark: SparkSession,
    run: RunDirectory,
    wave: int,
    scan: ScanTasks,
    columns: Sequence[str] | None = None,
) -> WaveResult:
    """Let the tasks of *scan* write what they read into the folder ``data``, in one job of Spark.

    Each has read its files back (`scan_files.write_scan`, which *columns* are given to).
    """
    options, at, spans = scan.options, scan.at, scan.spans

    def write(number: int, folder: Path) -> Iterator[ScanFile]:
        return write_scan(options.batches(at, spans[number]), folder, columns)

    folder = run.wave_folder(SCANNED, wave)
    rows = write_in_tasks(spark, folder, FolderTasks(len(spans), write, COLUMNS))
    found = [ScanFile(*row) for row in rows]
    digest = sum((Digest(one.rows, int(one.total), one.xor) for one in found), Digest())
    counts = {name: sum(getattr(one, name) for one in found) for name in _COUNTS}
    below = folder.relative_to(run.path)
    files = tuple(DataFile(str(below / one.name), one.size, one.checksum) for one in found)
    return WaveResult(digest, counts, files)


class FolderTasks(NamedTuple):
    """Tasks that write files into a folder.

    Attributes:
        number: How many there are.
        write: Called with the number of a task and the folder; yields a row for each file, whose
            first field is the file's name. Each attempt of a task has names of its own.
        columns: Those of the rows, in Spark's words.
    """

    number: int
    write: Callable[[int, Path], Iterable[Row]]
    columns: str


def write_in_tasks(spark: SparkSession, folder: Path, tasks: FolderTasks) -> list[Row]:
    """Make *folder*, let *tasks* write into it, and return their rows, in one job of Spark.

    What other attempts left is deleted: it is in no row.
    """
    folder.mkdir(mode=0o700)
    write = tasks.write
    rows = run_tasks(spark, tasks.number, lambda number: write(number, folder), tasks.columns)
    for left in {one.name for one in folder.iterdir()} - {row[0] for row in rows}:
        (folder / left).unlink(missing_ok=True)
    return rows


def only_wave(files: tuple[DataFile, ...], rows: int, seconds: float) -> Wave:
    """Return the wave of a run whose result is one table, in *files*."""
    return Wave(
        number=0,
        spans=(),
        attempts=1,
        digest=Digest(rows=rows),
        counts={},
        files=files,
        seconds=seconds,
    )


def read_parquet(
    spark: SparkSession, folder: Path, files: Sequence[DataFile], schema: StructType | str
) -> DataFrame:
    """Return the rows of *files* in *folder*, which have the columns of *schema*."""
    names = [literal_path(folder / file.name) for file in files]
    if not names:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*names)


def local_path(path: Path) -> str:
    """Return *path* for Spark, which looks for one without a scheme where Hadoop is configured."""
    return f"file://{path.absolute()}"


def literal_path(path: Path) -> str:
    """Return *path* for Spark's readers, which take some characters for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", local_path(path))
