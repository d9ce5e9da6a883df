"""Comparing stores and snapshots: every difference is found, and nothing else is called one."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from kip30 import BYTES, KeyMissingError, PluginLocator, UsageError
from kip30.pipeline import diff, snapshot
from kip30.pipeline.diff import DiffOptions
from kip30.pipeline.difference_files import read_differences
from kip30.pipeline.endpoints import Endpoint, SnapshotEndpoint, parse_endpoint, store_endpoint
from kip30.pipeline.report import Ending, Report
from kip30.pipeline.run_directory import read_manifest

from .stores import Stores, fill, stores_in

SAME = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(60)}
PLANTED_LEFT = {"n0/changed": b"old!", "n1/left": b"here", "left-empty": b"", "é/ü": b"l"}
PLANTED_RIGHT = {"n0/changed": b"new!", "n2/right": b"here", "right-empty": b"", "é/ü": b"r"}
PLANTED = {
    "n0/changed": "differs",
    "é/ü": "differs",
    "n1/left": "only_left",
    "left-empty": "only_left",
    "n2/right": "only_right",
    "right-empty": "only_right",
}
MIRRORED = {"only_left": "only_right", "only_right": "only_left", "differs": "differs"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(scope="module")
def left(stores: Stores) -> Path:
    config = stores.config("embedded", "left")
    fill(config, SAME | PLANTED_LEFT)
    return config


@pytest.fixture(scope="module")
def right(stores: Stores) -> Path:
    config = stores.config("embedded", "right")
    fill(config, SAME | PLANTED_RIGHT)
    return config


def live(config: Path, under: str = "") -> Endpoint:
    return parse_endpoint(f"{config}#{under}" if under else str(config))


def taken(spark: SparkSession, config: Path, out: Path) -> SnapshotEndpoint:
    """Return a snapshot of the store of *config*."""
    options = snapshot.SnapshotOptions(source=store_endpoint(live(config)), out=out, span_rows=20)
    snapshot.run(spark, options)
    return SnapshotEndpoint(str(out), out, "")


def compared(  # noqa: PLR0913, PLR0917  a test names what it compares
    spark: SparkSession, left: Endpoint, right: Endpoint, out: Path, *, full: bool = False
) -> tuple[Report, dict[str, str]]:
    """Return the report of a diff, and the kind of each key in its files."""
    options = DiffOptions(left=left, right=right, out=out, full=full, span_rows=20)
    report = diff.run(spark, options)
    return report, kinds(differences(spark, out))


def differences(spark: SparkSession, out: Path) -> DataFrame:
    files = [file for wave in read_manifest(out).waves for file in wave.files]
    return read_differences(spark, out, files)


def kinds(found: DataFrame) -> dict[str, str]:
    rows = found.collect()
    assert len({row.key for row in rows}) == len(rows)
    return {row.key: row.kind for row in rows}


def test_planted_differences_are_found_and_no_others(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """P17, of values of one length, and of empty values against missing keys."""
    report, found = compared(spark, live(left), live(right), tmp_path / "run")
    assert found == PLANTED
    assert report.ending is Ending.FINDINGS
    assert {finding["key"]: finding["outcome"] for finding in report.findings} == PLANTED
    assert report.counts["left_rows"] == len(SAME) + len(PLANTED_LEFT)
    assert report.counts["right_rows"] == len(SAME) + len(PLANTED_RIGHT)
    assert [report.counts[kind] for kind in ("only_left", "only_right", "differs")] == [2, 2, 2]
    rows = {row.key: row for row in differences(spark, tmp_path / "run").collect()}
    changed, empty = rows["n0/changed"], rows["left-empty"]
    assert changed.left_bytes == changed.right_bytes == 4
    assert changed.left_digest != changed.right_digest
    assert (empty.left_bytes, empty.right_bytes, empty.right_version) == (0, None, None)
    with PluginLocator().startup(left) as locator:
        stored = locator.storage(BYTES).get("n0/changed")
    assert stored is not None
    assert tuple(changed.left_version) == tuple(stored.version)


def test_snapshots_mirrored_and_whole_values(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """P18, P19: snapshot against snapshot, against live stores, both ways, in both modes."""
    first, second = taken(spark, left, tmp_path / "l"), taken(spark, right, tmp_path / "r")
    assert compared(spark, first, second, tmp_path / "a")[1] == PLANTED
    assert compared(spark, first, live(right), tmp_path / "b", full=True)[1] == PLANTED
    report, found = compared(spark, live(right), first, tmp_path / "c")
    assert found == {key: MIRRORED[kind] for key, kind in PLANTED.items()}
    forth = differences(spark, tmp_path / "b").toDF(*diff.COLUMNS)
    back = differences(spark, tmp_path / "c")
    assert report.counts["only_left"] == 2
    assert {(r.key, r.left_digest, r.right_digest) for r in forth.collect()} == {
        (r.key, r.right_digest, r.left_digest) for r in back.collect()
    }
