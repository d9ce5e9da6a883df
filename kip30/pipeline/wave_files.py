"""The Parquet files of a run: written, read back, and only then counted as there."""

import re
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kip30.errors import StoreError
from kip30.pipeline.manifest import DataFile, Digest, Wave
from kip30.pipeline.record_digests import digest_of, measured
from kip30.pipeline.run_directory import RunDirectory
from kip30.pipeline.wave_runner import WaveResult

_PATTERN = re.compile(r"[\\*?\[\]{}^]")


def write_files(run: RunDirectory, kind: str, wave: int, rows: DataFrame) -> tuple[DataFile, ...]:
    """Write *rows*, of a wave of *run*, into the folder *kind*, in one job of Spark."""
    folder = run.wave_folder(kind, wave)
    rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))
    return run.files_in(folder)


def write_wave(run: RunDirectory, kind: str, wave: int, rows: DataFrame) -> WaveResult:
    """Write *rows*, which have a digest, and read back what is on the disk.

    Raises:
        StoreError: The files hold other rows than were written.
    """
    written, expected = measured(rows, wave)
    files = write_files(run, kind, wave, written)
    found = digest_of(read_parquet(rows.sparkSession, run.path, files, rows.schema))
    if found != expected.get:
        raise StoreError(f"wave {wave} in {run.path} holds other rows than were written: {found}")
    return WaveResult(found.digest, found.counts, files)


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


def literal_path(path: Path) -> str:
    """Return *path* for Spark's readers, which take some characters for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", str(path))
