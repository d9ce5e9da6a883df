"""DataFrames for notebooks: the records of an endpoint, and what jobs left in their folders."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, IntegerType

from kip30.driver.scanning import Layout
from kip30.errors import StoreError, UsageError
from kip30.pipeline.follow.feed_sinks import OUT
from kip30.pipeline.follow.journal_rows import journal_schema
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import FEED_JOB
from kip30.pipeline.spark.bulk_write import OUTCOMES
from kip30.pipeline.spark.session import register
from kip30.pipeline.spark.source import FORMAT, ScanOptions
from kip30.pipeline.spark.wave_files import literal_path, read_parquet
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, parse_endpoint
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles


def records(spark: SparkSession, endpoint: str) -> DataFrame:
    """Return the records of *endpoint*, a store or a snapshot, in the words of the command line.

    The columns are those of `kip30.pipeline.spark.schemas`. A store is planned when the DataFrame
    is made, and read whenever an action needs it.

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


def changes(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return a stream of what the feed with its run in *folder* writes into files.

    Rows of a key come in their order. One comes a second time, with the same *number*, if the feed
    was killed while it wrote it. The columns are those of `journal_schema`, *day* and *batch*.

    Raises:
        UsageError: There is no run, or one of another job, or of a feed into a store.
    """
    manifest = read_manifest(Path(folder))
    if manifest.job != FEED_JOB or manifest.arguments["target"] is not None:
        raise UsageError(f"{folder} is not a run of a feed into files")
    is_mapped = manifest.arguments["into"] is not None
    layout = Layout.KIP30 if is_mapped else Layout(manifest.source["layout"])
    schema = from_arrow_schema(journal_schema(layout))
    schema = schema.add("day", DateType()).add("batch", IntegerType())
    return spark.readStream.schema(schema).parquet(literal_path(Path(folder) / OUT))


def outcomes(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the keys that a job which wrote, and has its run in *folder*, could not write.

    The columns are outcome, key and detail.

    Raises:
        UsageError: There is no run.
        StoreError: It has no outcomes.
    """
    manifest = read_manifest(Path(folder))
    files = manifest.files
    if not files:
        raise StoreError(f"{folder} is a run of {manifest.job} that has no outcomes")
    found = read_parquet(spark, Path(folder), files, OUTCOMES)
    return found.where("key IS NOT NULL").drop("number")
