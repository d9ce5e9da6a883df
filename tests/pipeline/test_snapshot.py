"""Snapshots: each record once, with any spans, and whenever the driver is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30 import PluginLocator, UsageError
from kip30.pipeline import dataframes, snapshot
from kip30.pipeline.endpoints import parse_endpoint, store_endpoint
from kip30.pipeline.manifest import Digest
from kip30.pipeline.report import Ending, Report
from kip30.pipeline.run_directory import read_manifest
from kip30_conformance.patience import TIME_SCALE
from tests.unit.etcd.admin import Admin

from .stores import Stores, fill, stores_in

VALUES = {f"n{number % 5}/k{number:03}": b"v%d" % number for number in range(300)}
KILLED = """
import os, signal, sys
from pathlib import Path
from kip30.pipeline import run_directory, snapshot, view_reader, wave_files
from kip30.pipeline.endpoints import parse_endpoint
from kip30.pipeline.session import open_session
source, out, point = sys.argv[1:]
owner, name = {
    "planned": (run_directory.RunDirectory, "save_plan"),
    "written": (wave_files, "write_files"),
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


@pytest.fixture(scope="module")
def configs(stores: Stores) -> dict[str, Path]:
    """Return stores that hold the values."""
    found = {store: stores.config(store, "values") for store in ("embedded", "etcd")}
    for config in found.values():
        fill(config, VALUES)
    return found


def taken(spark: SparkSession, config: Path, out: Path, under: str = "", **more: object) -> Report:
    source = store_endpoint(parse_endpoint(f"{config}#{under}" if under else str(config)))
    options = {"source": source, "out": out, "span_rows": 30, **more}
    return snapshot.run(spark, snapshot.SnapshotOptions(**options))  # type: ignore[arg-type]


def values_in(spark: SparkSession, folder: Path) -> dict[str, bytes]:
    rows = dataframes.records(spark, str(folder)).collect()
    found = {row.key: bytes(row.value) for row in rows}
    assert len(found) == len(rows)
    return found


def digest_of(folder: Path) -> Digest:
    return read_manifest(folder).digest


@pytest.mark.parametrize("store", ["embedded", "etcd"])
def test_the_size_of_spans_changes_nothing(
    spark: SparkSession, configs: dict[str, Path], store: str, tmp_path: Path
) -> None:
    """P03; and two stores with equal values have equal digests."""
    digests = set[Digest]()
    for rows in (7, 100, 10_000):
        out = tmp_path / str(rows)
        report = taken(spark, configs[store], out, span_rows=rows)
        assert (report.ending, report.counts["rows"]) == (Ending.DONE, len(VALUES))
        assert report.counts["value_bytes"] == sum(map(len, VALUES.values()))
        digests.add(digest_of(out))
    assert len(digests) == 1
    assert values_in(spark, tmp_path / "7") == VALUES
    other = tmp_path / "other"
    taken(spark, configs["etcd" if store == "embedded" else "embedded"], other)
    assert digest_of(other) in digests


@pytest.mark.parametrize(
    ("store", "point"),
    [
        ("embedded", "written"),
        ("etcd", "entered"),
        pytest.param("embedded", "planned", marks=pytest.mark.heavy),
        pytest.param("embedded", "entered", marks=pytest.mark.heavy),
        pytest.param("embedded", "read", marks=pytest.mark.heavy),
        pytest.param("etcd", "planned", marks=pytest.mark.heavy),
        pytest.param("etcd", "written", marks=pytest.mark.heavy),
        pytest.param("etcd", "read", marks=pytest.mark.heavy),
    ],
)
def test_a_killed_driver_is_resumed(  # noqa: PLR0913, PLR0917  fixtures
    spark: SparkSession,
    stores: Stores,
    configs: dict[str, Path],
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
        timeout=120 * TIME_SCALE,
        start_new_session=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    fill(config, {"n1/later": b"not in the snapshot"})
    done = {file.name for wave in read_manifest(out).waves for file in wave.files}
    report = taken(spark, config, out, resume=True)
    assert report.ending is Ending.DONE
    assert values_in(spark, out) == VALUES
    taken(spark, configs[store], tmp_path / "whole")
    assert digest_of(out) == digest_of(tmp_path / "whole")
    assert done <= {file.name for wave in read_manifest(out).waves for file in wave.files}
    listed = {out / file.name for wave in read_manifest(out).waves for file in wave.files}
    assert set(out.rglob("*.parquet")) == listed
    assert not (out / "scratch").exists()
    with pytest.raises(UsageError, match="done"):
        taken(spark, config, out, resume=True)


def test_a_lost_position_ends_the_run(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    """P06: no row of another moment is added."""
    config = stores.config("etcd", "compacted")
    fill(config, VALUES)
    out = tmp_path / "run"
    subprocess.run(
        [sys.executable, "-c", KILLED, str(config), str(out), "entered"],
        check=False,
        capture_output=True,
        timeout=120 * TIME_SCALE,
        start_new_session=True,
    )
    before = read_manifest(out).waves
    fill(config, {"n1/later": b"x"})
    stores.ensemble("etcd").compact()
    report = taken(spark, config, out, resume=True)
    assert report.ending is Ending.INCOMPLETE
    assert "compact" in report.reason
    assert read_manifest(out).waves == before


def test_part_of_a_store(spark: SparkSession, configs: dict[str, Path], tmp_path: Path) -> None:
    taken(spark, configs["etcd"], tmp_path / "run", under="n1")
    wanted = {key: value for key, value in VALUES.items() if key.startswith("n1/")}
    assert values_in(spark, tmp_path / "run") == wanted


def test_a_store_with_nothing_in_it(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    for store in ("embedded", "etcd"):
        report = taken(spark, stores.config(store, "nothing"), tmp_path / store)
        assert (report.ending, report.counts["rows"]) == (Ending.DONE, 0)
        assert values_in(spark, tmp_path / store) == {}


def test_claims_are_not_copied(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    """P14: the epochs are noted, for a program may keep one elsewhere."""
    config = stores.config("etcd", "claims")
    fill(config, {"n/k": b"v"})
    with PluginLocator().startup(config) as locator:
        locator.group_membership("g").join("m", "")
        election = locator.leader_election("s")
        election.nominate("c", "")
        term = election.leadership("c")
        assert term is not None
        taken(spark, config, tmp_path / "run", show_claims=True)
    assert values_in(spark, tmp_path / "run") == {"n/k": b"v"}
    assert read_manifest(tmp_path / "run").source["epochs"] == {"s": term.epoch}
    lines = (tmp_path / "run" / "claims.jsonl").read_text().splitlines()
    claims = {(one["kind"], *one["names"]) for one in map(json.loads, lines)}
    assert claims == {("member", "g", "m"), ("leader", "s", "c"), ("epoch", "s")}


def test_foreign_keys_are_findings(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    config = stores.config("etcd", "foreign")
    fill(config, {"n/k": b"v"})
    Admin(stores.ensemble("etcd").nodes[0].address).put("/foreign/kv/n/other", b"not ours")
    report = taken(spark, config, tmp_path / "run")
    assert report.ending is Ending.FINDINGS
    assert (report.counts["rows"], report.counts["rejected"]) == (1, 1)
    (finding,) = report.findings
    assert (finding["key"], finding["outcome"]) == ("/foreign/kv/n/other", "rejected")


def test_a_filter_does_not_stay(spark: SparkSession, configs: dict[str, Path]) -> None:
    """P39: Spark applies filters that were pushed down to the next query, too."""
    for config in configs.values():
        frame = spark.read.format("kip30").option("config", str(config)).load()
        assert frame.where("key LIKE 'n1/%'").count() == 60
        assert frame.count() == len(VALUES)


def test_values_at_the_limit(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    config = stores.config("embedded", "large")
    large = {f"n/k{number}": os.urandom(256 * 1024) for number in range(40)}
    fill(config, large)
    assert taken(spark, config, tmp_path / "run").ending is Ending.DONE
    assert values_in(spark, tmp_path / "run") == large
