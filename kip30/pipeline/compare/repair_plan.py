"""The plan of a repair: an action for each difference, taken from the files of a diff."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructType

from kip30.driver import Capability
from kip30.driver.scanning import Layout
from kip30.errors import UsageError
from kip30.pipeline.compare import diff
from kip30.pipeline.compare.comparison import DIFFERS, LEFT, ONLY_LEFT, ONLY_RIGHT, RIGHT, SIDES
from kip30.pipeline.compare.difference_files import read_differences
from kip30.pipeline.compare.sides import ReadOptions, open_side
from kip30.pipeline.run.directory import read_manifest, verify_files
from kip30.pipeline.run.manifest import Manifest
from kip30.pipeline.run.progress import NoProgress
from kip30.pipeline.spark.schemas import RECORDS
from kip30.pipeline.spark.source import SPAN_ROWS
from kip30.pipeline.spark.wave_files import read_parquet
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, StoreEndpoint, require
from kip30.runtime.resolution import resolve, scanner

CREATE, UPDATE, DELETE = "create", "update", "delete"
ACTIONS = (CREATE, UPDATE, DELETE)

_VERSION = from_arrow_schema(RECORDS)["version"].dataType
_PLAN = (
    StructType()
    .add("key", StringType())
    .add("action", StringType())
    .add("version", _VERSION)
    .add("left_version", _VERSION)
    .add("left_digest", LongType())
)
"""*version* is the one that the right side must have, null where it must have none;
*left_version* is the one that the left side must have, null where the key is deleted, and so is
*left_digest*, that of its value: some records of other programs have no version."""


class LeftNow(NamedTuple):
    """The left side of a diff, read in bulk for its repair.

    Attributes:
        rows: Its rows in the columns of `comparable`, with their values, rejected ones included.
        prefixes: The prefixes of the keys that rejected ones hide, as of `prefixes_of`.
    """

    rows: DataFrame
    prefixes: Sequence[bytes]


class DiffFound(NamedTuple):
    """A diff that is done, of two sides that a repair can work on.

    Attributes:
        folder: The folder of its run.
        manifest: Its manifest.
        left: The side to follow: a store or a snapshot.
        right: The store to repair.
        into: The namespace that the left side, which is raw, was mapped to; None if it is not.
    """

    folder: Path
    manifest: Manifest
    left: StoreEndpoint | SnapshotEndpoint
    right: StoreEndpoint
    into: str | None

    def left_now(self, spark: SparkSession, folder: Path) -> LeftNow:
        """Return the left side, as *folder* will have it if it is a store, or as the snapshot has.

        Raises:
            StoreError: The snapshot is damaged.
            IncompleteRunError, JobFailedError, Kip30Error: The store cannot be read.
        """
        options = ReadOptions(into=self.into, full=True, span_rows=SPAN_ROWS, request_seconds=None)
        with closing(open_side(spark, options, self.left, folder)) as side:
            side.begin()
            side.read(NoProgress())
            rows = side.table().where("skipped IS NULL")
            return LeftNow(rows, side.prefixes(rows))

    def differences(self, spark: SparkSession) -> DataFrame:
        """Return its differences."""
        return read_differences(spark, self.folder, self.manifest.files)

    def check_stores(self) -> None:
        """Return if the stores are those that the diff compared.

        Raises:
            UsageError: One is another store, namespace or snapshot by now.
            Kip30Error: One is not reached.
        """
        for side, endpoint in ((LEFT, self.left), (RIGHT, self.right)):
            if isinstance(endpoint, StoreEndpoint):
                self._check_store(side, endpoint)
            elif read_manifest(endpoint.folder).run != self.manifest.source[side]["snapshot"]:
                raise UsageError(f"{endpoint.text} is another snapshot by now: compare again")

    def _check_store(self, side: str, endpoint: StoreEndpoint) -> None:
        facts = self.manifest.source[side]
        before = _named(facts["position"][0], facts["namespace"])
        properties = endpoint.config.properties()
        with scanner(properties, endpoint.view()) as store:
            now = _named(store.position().store, resolve(properties).context.namespace)
        if now != before:
            raise UsageError(
                f"{endpoint.text} is {now} by now, and the diff's {side} side was {before}:"
                " compare them again"
            )


def find_diff(folder: Path) -> DiffFound:
    """Return the diff in *folder*.

    Raises:
        UsageError: It is no diff, or not done, or of sides that cannot be repaired.
        UnsupportedError: The right side cannot compare and set.
        StoreError: Files of it are missing or damaged.
    """
    manifest = read_manifest(folder)
    if manifest.job != diff.JOB:
        raise UsageError(f"{folder} is a run of {manifest.job}: name the folder of a diff")
    if not manifest.done:
        raise UsageError(f"{folder} is a diff that is not done: finish it with --resume")
    verify_files(folder, manifest)
    into: str | None = manifest.arguments["into"]
    for side in SIDES:
        is_mapped = side == LEFT and into is not None
        if manifest.source[side]["layout"] != Layout.KIP30.value and not is_mapped:
            raise UsageError(f"{folder} compared a {side} side that is raw: restore can import it")
    left, right = (_endpoint(manifest.source[side]) for side in (LEFT, RIGHT))
    if isinstance(right, SnapshotEndpoint):
        raise UsageError(f"{right.text} is a snapshot: only a store as the right side is repaired")
    require(right, Capability.COMPARE_AND_SET)
    is_raw = manifest.source[LEFT]["layout"] == Layout.RAW.value
    return DiffFound(folder, manifest, left, right, into if is_raw else None)


def plan_of(found: DataFrame) -> DataFrame:
    """Return the actions that make the right side of the differences *found* like the left one.

    The columns are key, action, version, left_version and left_digest. Keys that are unsettled are
    left alone.
    """
    kind = f.col("kind")
    action = (
        f.when(kind == ONLY_LEFT, CREATE)
        .when(kind == DIFFERS, UPDATE)
        .when(kind == ONLY_RIGHT, DELETE)
    )
    version = f.col("right_version").alias("version")
    left = ("left_version", "left_digest")
    rows = found.select("key", action.alias("action"), version, *left)
    return rows.where(f.col("action").isNotNull())


def read_plan(spark: SparkSession, folder: Path, of: DiffFound) -> DataFrame:
    """Return the plan that a dry run wrote into *folder*.

    Raises:
        UsageError: *folder* has no plan, or that of a repair of another diff.
        StoreError: Files of it are missing or damaged.
    """
    manifest = read_manifest(folder)
    source: dict[str, Any] = manifest.source
    if not (manifest.done and source.get("is_plan")):
        raise UsageError(f"{folder} has no plan: name the folder of a repair without --apply")
    if source["diff"] != of.manifest.run:
        raise UsageError(f"{folder} has the plan for the diff {source['diff']}, another one")
    verify_files(folder, manifest)
    return read_parquet(spark, folder, manifest.files, _PLAN)


def count_actions(plan: DataFrame) -> dict[str, int]:
    """Return how many keys of *plan* have each action."""
    return dict.fromkeys(ACTIONS, 0) | dict(plan.groupBy("action").count().collect())


def _endpoint(facts: dict[str, Any]) -> StoreEndpoint | SnapshotEndpoint:
    text, under = facts["endpoint"], facts["under"]
    if "config" in facts:
        layout = Layout(facts["layout"])
        return StoreEndpoint(text, StoreConfig.parse(facts["config"]), layout, under)
    return SnapshotEndpoint(text, Path(facts["folder"]), under)


def _named(store: str, namespace: str) -> str:
    return f"namespace {namespace!r} of {store}"
