"""Snapshots whose driver is killed and that another driver goes on with."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30 import UsageError
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.report import JobEnding
from kip30_conformance.polling import time_scale

from .snapshots import take, values_of
from .stores import Stores, fill, stores_in

VALUES = {f"n{number % 5}/k{number:03}": b"v%d" % number for number in range(300)}
KILLED = """
import os, signal, sys
from pathlib import Path
from kip30.pipeline.run import directory as run_directory
from kip30.pipeline.transfer import snapshot, view_reader
from kip30.pipeline.stores.endpoints import parse_endpoint
from kip30.pipeline.spark.session import open_session
source, out, point = sys.argv[1:]
owner, name = {
    "planned": (run_directory.RunDirectory, "save_plan"),
    "written": (snapshot, "write_scanned"),
    "entered": (snapshot._Snapshot, "_wave"),
    "read": (view_reader.ViewReader, "finish"),
}[point]
original = getattr(owner, name)
calls = 0
def deadly(*words, **more):
    global calls
    calls += 1
    if point == "entered" and calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*words, **more)
    if point == "planned" or point == "read" or (point == "written" and calls == 2):
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, deadly)
spark = open_session("local[2]", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
options = snapshot.SnapshotOptions(source=parse_endpoint(source), out=Path(out), span_rows=30)
snapshot.run(spark, options)
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.mark.parametrize(
    ("store", "point"),
    [
        ("embedded", "written"),
        pytest.param("etcd", "entered", marks=pytest.mark.large),
        pytest.param("embedded", "planned", marks=pytest.mark.heavy),
        pytest.param("embedded", "entered", marks=pytest.mark.heavy),
        pytest.param("embedded", "read", marks=pytest.mark.heavy),
        pytest.param("etcd", "planned", marks=pytest.mark.heavy),
        pytest.param("etcd", "written", marks=pytest.mark.heavy),
        pytest.param("etcd", "read", marks=pytest.mark.heavy),
    ],
)
def test_a_killed_driver_is_resumed(
    spark: SparkSession,
    stores: Stores,
    store: str,
    point: str,
    tmp_path: Path,
) -> None:
    """P04: the result is that of a run that was not killed, although others write."""
    config = stores.config(store, f"killed-{point}")
    fill(config, VALUES)
    out = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(config), str(out), point],
        check=False,
        capture_output=True,
        timeout=120 * time_scale(),
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    fill(config, {"n1/later": b"not in the snapshot"})
    done = {file.name for wave in read_manifest(out).waves for file in wave.files}
    report = take(spark, config, out, span_rows=30, resume=True)
    assert report.ending is JobEnding.DONE
    assert values_of(spark, out) == VALUES
    unharmed = stores.config(store, f"unharmed-{point}")
    fill(unharmed, VALUES)
    take(spark, unharmed, tmp_path / "whole")
    assert read_manifest(out).digest == read_manifest(tmp_path / "whole").digest
    assert done <= {file.name for wave in read_manifest(out).waves for file in wave.files}
    listed = {out / file.name for wave in read_manifest(out).waves for file in wave.files}
    assert set(out.rglob("*.parquet")) == listed
    assert not (out / "scratch").exists()
    with pytest.raises(UsageError, match="done"):
        take(spark, config, out, span_rows=30, resume=True)
