"""DataFrames for notebooks: the records of an endpoint, and what jobs left in their folders."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kip30.errors import StoreError
from kip30.pipeline.bulk_write import OUTCOMES
from kip30.pipeline.endpoints import SnapshotEndpoint, parse_endpoint
from kip30.pipeline.run_directory import read_manifest
from kip30.pipeline.session import register
from kip30.pipeline.snapshot_files import SnapshotFiles
from kip30.pipeline.source import FORMAT, ScanOptions
from kip30.pipeline.wave_files import read_parquet


def records(spark: SparkSession, endpoint: str) -> DataFrame:
    """Return the records of *endpoint*, a store or a snapshot, in the words of the command line.

    The columns are those of `kip30.pipeline.schemas`. A store is planned when the DataFrame is
    made, and read whenever an action needs it.

    Raises:
        UsageError: There is no such file or folder.
        StoreError: The snapshot is not done, or a file of it is missing.
    """
    found = parse_endpoint(endpoint)
    if isinstance(found, SnapshotEndpoint):
        return SnapshotFiles(spark, found).rows()
    register(spark)
    options = ScanOptions(found.config, found.view())
    return spark.read.format(FORMAT).options(**options.texts()).load()


def outcomes(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the keys that a job which wrote, and has its run in *folder*, could not write.

    The columns are outcome, key and detail.

    Raises:
        StoreError: There is no such run.
    """
    manifest = read_manifest(Path(folder))
    files = [file for wave in manifest.waves for file in wave.files]
    if not files:
        raise StoreError(f"{folder} is a run of {manifest.job} that has no outcomes")
    found = read_parquet(spark, Path(folder), files, OUTCOMES)
    return found.where("key IS NOT NULL").drop("number")
