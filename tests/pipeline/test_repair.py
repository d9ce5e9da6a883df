"""Repairing a store: keys in the diff are made equal; keys that changed since stay as they are."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30 import BYTES, PluginLocator, UsageError
from kip30.config import load
from kip30.driver.records import Kind
from kip30.driver.scanning import View
from kip30.pipeline.compare import diff, repair
from kip30.pipeline.compare.diff import DiffOptions
from kip30.pipeline.compare.repair import RepairOptions
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import DIFF_JOB, MANIFEST_NAME, Manifest
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import (
    Endpoint,
    SnapshotEndpoint,
    parse_endpoint,
    store_endpoint,
)
from kip30.pipeline.transfer import snapshot
from kip30.runtime.resolution import scanner
from kip30_conformance.neighbour.base import Spot

from .manifests import expect_done_with_the_report
from .stores import Stores, contents, fill, stores_in

SAME = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(30)}
LEFT = SAME | {"changed": b"old!", "n1/left": b"here", "left-empty": b"", "é/ü": b"l" * 1000}
RIGHT = SAME | {"changed": b"new!", "n2/right": b"here", "right-empty": b"", "é/ü": b"r"}
KEYS = sorted(LEFT | RIGHT)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture
def left(stores: Stores, request: pytest.FixtureRequest) -> Path:
    return filled(stores, f"left-{request.node.name}", LEFT)


@pytest.fixture
def right(stores: Stores, request: pytest.FixtureRequest) -> Path:
    return filled(stores, f"right-{request.node.name}", RIGHT)


def filled(stores: Stores, name: str, values: dict[str, bytes], store: str = "embedded") -> Path:
    config = stores.config(store, name.replace("[", "-").rstrip("]"))
    fill(config, values)
    return config


def compared(spark: SparkSession, left: Endpoint | Path, right: Path, out: Path) -> Path:
    """Return the folder of a diff."""
    first = parse_endpoint(str(left)) if isinstance(left, Path) else left
    diff.run(spark, DiffOptions(left=first, right=parse_endpoint(str(right)), out=out))
    return out


def repaired(spark: SparkSession, of: Path, out: Path, **more: object) -> Report:
    return repair.run(spark, RepairOptions(diff=of, out=out, **more))  # type: ignore[arg-type]


def position(config: Path) -> str:
    with scanner(load(config), View()) as store:
        return store.position().at


def counted(report: Report, *names: str) -> list[int]:
    return [report.counts[name] for name in names]


def leave_as_after_a_crash(run: Path) -> None:
    """Make the manifest in *run* as if its outcomes were lost."""
    manifest = read_manifest(run)
    manifest.waves, manifest.counts, manifest.done = [], {}, False
    (run / MANIFEST_NAME).write_text(manifest.to_json())


def test_a_dry_run_and_what_it_planned(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """P20: nothing is written without *apply*, and nothing deleted without being asked for."""
    of = compared(spark, left, right, tmp_path / "diff")
    before = position(right)
    dry = repaired(spark, of, tmp_path / "dry")
    assert position(right) == before
    assert dry.ending is JobEnding.FINDINGS
    assert counted(dry, "create", "update", "delete", "unsettled") == [2, 2, 2, 0]
    assert {one["key"]: one["outcome"] for one in dry.findings} == {
        **dict.fromkeys(("n1/left", "left-empty"), "create"),
        **dict.fromkeys(("changed", "é/ü"), "update"),
        **dict.fromkeys(("n2/right", "right-empty"), "delete"),
    }

    kept = repaired(spark, of, tmp_path / "kept", apply=True)
    assert counted(kept, "written", "extra", "conflict") == [4, 2, 0]
    assert (kept.ending, contents(right, KEYS)) == (JobEnding.FINDINGS, RIGHT | LEFT)

    planned = {"apply": True, "delete_extra": True, "plan": tmp_path / "dry"}
    whole = repaired(spark, of, tmp_path / "whole", **planned)
    assert counted(whole, "written", "same", "extra") == [2, 4, 0]
    assert (whole.ending, contents(right, KEYS)) == (JobEnding.DONE, LEFT)
    options = DiffOptions(
        left=parse_endpoint(str(left)), right=parse_endpoint(str(right)), out=tmp_path / "after"
    )
    assert diff.run(spark, options).ending is JobEnding.DONE


def test_a_diff_and_a_repair_are_done_once_their_report_is_written(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """A run that is done cannot be resumed, so nothing would name its findings later."""
    first, second = (parse_endpoint(str(one)) for one in (left, right))
    comparing = DiffOptions(left=first, right=second, out=tmp_path / "diff")
    compare = partial(diff.run, spark, replace(comparing, resume=True))
    expect_done_with_the_report(tmp_path / "diff", DIFF_JOB, comparing.arguments(), compare)
    planning = RepairOptions(diff=tmp_path / "diff", out=tmp_path / "plan")
    plan = partial(repair.run, spark, replace(planning, resume=True))
    expect_done_with_the_report(tmp_path / "plan", repair.JOB, planning.arguments(), plan)


def test_keys_that_changed_since_the_diff_are_conflicts(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """P20: each such key is a conflict, on either side, and stays as it is."""
    of = compared(spark, left, right, tmp_path / "diff")
    repaired(spark, of, tmp_path / "dry")
    with PluginLocator().startup(right) as locator:
        storage = locator.storage(BYTES)
        storage.put("n1/left", b"mine")
        storage.set("changed", b"newer")
        storage.set("n2/right", b"newer")
    with PluginLocator().startup(left) as locator:
        locator.storage(BYTES).set("é/ü", b"newer")
    planned = {"apply": True, "delete_extra": True, "plan": tmp_path / "dry"}
    report = repaired(spark, of, tmp_path / "run", **planned)
    assert counted(report, "written", "same", "conflict") == [2, 0, 4]
    refused = ["changed", "n1/left", "n2/right", "é/ü"]
    assert {finding["key"] for finding in report.findings} == set(refused)
    assert report.ending is JobEnding.FINDINGS
    changed = {"changed": b"newer", "n1/left": b"mine", "n2/right": b"newer", "é/ü": b"r"}
    assert contents(right, KEYS) == SAME | changed | {"left-empty": b""}


def test_a_key_that_the_left_side_has_by_now_is_not_deleted(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    of = compared(spark, left, right, tmp_path / "diff")
    repaired(spark, of, tmp_path / "dry")
    with PluginLocator().startup(left) as locator:
        locator.storage(BYTES).put("right-empty", b"created since")
    planned = {"apply": True, "delete_extra": True, "plan": tmp_path / "dry"}
    report = repaired(spark, of, tmp_path / "run", **planned)
    assert counted(report, "written", "conflict") == [5, 1]
    assert [one["key"] for one in report.findings] == ["right-empty"]
    assert contents(right, KEYS) == LEFT | {"right-empty": b""}


def test_a_record_that_the_diff_could_not_read_is_a_finding(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """It was not compared, so the sides may still differ."""
    left, right = filled(stores, "damaged", {"n/k": b"1"}), filled(stores, "without", {})
    with stores.neighbour("embedded", "damaged") as neighbour:
        spot = Spot(Kind.VALUE, "n", "k")
        neighbour.write(spot, neighbour.foreign(b"foreign"))
    of = compared(spark, left, right, tmp_path / "diff")
    report = repaired(spark, of, tmp_path / "run", apply=True)
    assert counted(report, "written", "unsettled", "left_rejected", "right_rejected") == [
        0,
        0,
        1,
        0,
    ]
    assert [(one["key"], one["outcome"]) for one in report.findings] == [("", "rejected")]
    assert report.ending is JobEnding.FINDINGS


@pytest.mark.large
def test_from_a_snapshot(spark: SparkSession, left: Path, right: Path, tmp_path: Path) -> None:
    """The values are those of the snapshot, also if its store has others by now."""
    source = store_endpoint(parse_endpoint(str(left)))
    out = tmp_path / "snapshot"
    snapshot.run(spark, snapshot.SnapshotOptions(source=source, out=out, span_rows=10))
    of = compared(spark, SnapshotEndpoint("s", out, ""), right, tmp_path / "diff")
    with PluginLocator().startup(left) as locator:
        locator.storage(BYTES).set("changed", b"newer")
    report = repaired(spark, of, tmp_path / "run", apply=True)
    assert counted(report, "written", "conflict") == [4, 0]
    assert contents(right, KEYS) == RIGHT | LEFT

    leave_as_after_a_crash(tmp_path / "run")
    resumed = repaired(spark, of, tmp_path / "run", apply=True, resume=True)
    assert (resumed.counts, resumed.ending) == (report.counts, report.ending)


def test_a_repair_is_not_resumed_with_another_diff(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """The folder of the diff was replaced meanwhile: its writes are not those of the run."""
    of = compared(spark, left, right, tmp_path / "diff")
    repaired(spark, of, tmp_path / "run", apply=True)
    leave_as_after_a_crash(tmp_path / "run")
    before = (tmp_path / "run" / MANIFEST_NAME).read_text()
    of.rename(tmp_path / "first")
    compared(spark, left, right, of)
    with pytest.raises(UsageError, match="begin a new run, without --resume"):
        repaired(spark, of, tmp_path / "run", apply=True, resume=True)
    assert (tmp_path / "run" / MANIFEST_NAME).read_text() == before


@pytest.mark.large
def test_from_etcd_into_zookeeper(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    left, right = filled(stores, "l", LEFT, "etcd"), filled(stores, "r", RIGHT, "zookeeper")
    of = compared(spark, left, right, tmp_path / "diff")
    assert counted(repaired(spark, of, tmp_path / "dry"), "create", "update", "delete") == [2, 2, 2]
    planned = {"apply": True, "delete_extra": True, "plan": tmp_path / "dry"}
    report = repaired(spark, of, tmp_path / "run", **planned)
    assert (report.ending, contents(right, KEYS)) == (JobEnding.DONE, LEFT)


def test_repairs_that_cannot_be(
    spark: SparkSession, stores: Stores, left: Path, right: Path, tmp_path: Path
) -> None:
    """Of other stores than the diff's, of snapshots, of raw sides, and without a plan."""
    out = tmp_path / "run"
    of = compared(spark, left, right, tmp_path / "diff")
    other = compared(spark, left, left, tmp_path / "other")
    dry = tmp_path / "dry"
    repaired(spark, other, dry)
    with pytest.raises(UsageError, match="--plan"):
        repaired(spark, of, out, apply=True, delete_extra=True)
    with pytest.raises(UsageError, match="--apply"):
        repaired(spark, of, out, plan=dry)
    with pytest.raises(UsageError, match="folder of a diff"):
        repaired(spark, dry, out)
    assert not out.exists()
    with pytest.raises(UsageError, match="another one"):
        repaired(spark, of, out, apply=True, plan=dry)
    file = right.read_text()
    elsewhere = stores.config("embedded", "elsewhere")
    fill(elsewhere, {})
    right.write_text(elsewhere.read_text())
    with pytest.raises(UsageError, match=r"'elsewhere' .* by now"):
        repaired(spark, of, tmp_path / "elsewhere", apply=True)
    with stores_in(tmp_path) as others:
        other_file = others.config("embedded", right.stem.removeprefix("embedded-"))
        fill(other_file, {})
        right.write_text(other_file.read_text())
    with pytest.raises(UsageError, match="by now"):
        repaired(spark, of, tmp_path / "moved", apply=True)
    right.write_text(file)
    manifest = read_manifest(of)
    taken_anew = manifest.source["left"] | {"folder": str(of), "snapshot": "another"}
    del taken_anew["config"]
    (of / MANIFEST_NAME).write_text(_with_source(manifest, left=taken_anew))
    with pytest.raises(UsageError, match="another snapshot"):
        repaired(spark, of, tmp_path / "taken-anew", apply=True)
    raw = manifest.source["right"] | {"layout": "raw"}
    (of / MANIFEST_NAME).write_text(_with_source(manifest, right=raw))
    with pytest.raises(UsageError, match="raw"):
        repaired(spark, of, tmp_path / "raw")


def _with_source(manifest: Manifest, **sides: object) -> str:
    return replace(manifest, source=manifest.source | sides).to_json()
