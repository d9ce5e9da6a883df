"""Snapshots that tests take, and what is in their files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from typing_extensions import override

from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import Manifest
from kip30.pipeline.run.progress import NoProgress, WaveProgress
from kip30.pipeline.run.report import Report
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint
from kip30.pipeline.transfer import snapshot


class Hooks(NoProgress):
    """Does what a test wants between the plan and the first wave, and after each wave."""

    def __init__(
        self,
        planned: Callable[[], object] = lambda: None,
        waved: Callable[[], object] = lambda: None,
    ) -> None:
        self._planned = planned
        self._waved = waved

    @override
    def begin(self, manifest: Manifest) -> None:
        self._planned()

    @override
    def wave(self, done: WaveProgress) -> None:
        self._waved()


def options(endpoint: object, out: Path, **more: Any) -> snapshot.SnapshotOptions:
    source = store_endpoint(parse_endpoint(str(endpoint)))
    return snapshot.SnapshotOptions(source=source, out=out, **more)


def take(
    spark: SparkSession, endpoint: object, out: Path, hooks: Hooks | None = None, **more: Any
) -> Report:
    return snapshot.run(spark, options(endpoint, out, **more), hooks)


def rows_of(spark: SparkSession, out: Path, columns: Sequence[str]) -> list[Row]:
    """Return *columns* of all rows in the files that the manifest lists."""
    names = [str(out / file.name) for wave in read_manifest(out).waves for file in wave.files]
    return spark.read.parquet(*names).select(*columns).collect() if names else []


def values_of(spark: SparkSession, out: Path) -> dict[str, bytes]:
    """Return the records, each of which has to be there once."""
    rows = rows_of(spark, out, ["key", "value", "rejected"])
    found = {row.key: bytes(row.value) for row in rows if row.rejected is None}
    assert len(found) == sum(row.rejected is None for row in rows)
    return found


def written(folder: Path, settings: dict[str, object], name: str = "store") -> Path:
    """Write a properties file."""
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def embedded(folder: Path, **more: object) -> Path:
    """Write a properties file of a store in *folder*."""
    (folder / "db").mkdir(mode=0o700, exist_ok=True)
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": folder / "db"}
    return written(folder, settings | more)
