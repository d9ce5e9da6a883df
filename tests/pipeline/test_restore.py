"""Restoring and migrating: nothing is overwritten, nothing lost, nothing counted twice."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

from kip30 import (
    BYTES,
    InvalidNameError,
    KeyExistsError,
    PluginLocator,
    StoreError,
    UnavailableError,
    UsageError,
)
from kip30.pipeline import dataframes
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import SNAPSHOT_FOLDER, Manifest
from kip30.pipeline.run.progress import NoProgress
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import (
    SnapshotEndpoint,
    StoreEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.pipeline.write.outcomes import OnConflict
from kip30_conformance.polling import eventually, time_scale

from .manifests import edit_manifest, expect_done_with_the_report
from .stores import contents, fill

VALUES = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(100)}


def embedded(folder: Path, name: str) -> Path:
    (folder / name).mkdir(mode=0o700)
    file = folder / f"{name}.properties"
    file.write_text(f"plugin.backend=embedded\nplugin.embedded.directory={folder / name}\n")
    return file


def endpoint(file: Path) -> StoreEndpoint:
    return target_endpoint(parse_endpoint(str(file)))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = embedded(tmp_path, "source")
    fill(file, VALUES)
    return file


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return embedded(tmp_path, "target")


@pytest.fixture
def taken(spark: SparkSession, source: Path, tmp_path: Path) -> SnapshotEndpoint:
    options = snapshot.SnapshotOptions(source=endpoint(source), out=tmp_path / "s", span_rows=10)
    snapshot.run(spark, options)
    return SnapshotEndpoint("s", tmp_path / "s", "")


def restored(
    spark: SparkSession,
    taken: SnapshotEndpoint | StoreEndpoint,
    target: Path,
    out: Path,
    **more: object,
) -> Report:
    options = {"source": taken, "target": endpoint(target), "out": out, **more}
    return restore_and_migrate.run(spark, restore_and_migrate.RestoreOptions(**options))  # type: ignore[arg-type]


def test_a_store_is_migrated(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path
) -> None:
    options = restore_and_migrate.RestoreOptions(
        source=endpoint(source), target=endpoint(target), out=tmp_path / "run", span_rows=10
    )
    report = restore_and_migrate.run(spark, options)
    assert report.ending is JobEnding.DONE
    assert report.counts["written"] == report.counts["rows"] == len(VALUES)
    assert contents(target, list(VALUES)) == VALUES
    position = read_manifest(tmp_path / "run" / SNAPSHOT_FOLDER).source["position"]
    assert read_manifest(tmp_path / "run").source["position"] == position


def test_other_values_stay_and_are_named(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    """P10."""
    fill(target, {"n0/k000": b"other", "n1/k001": VALUES["n1/k001"], "mine": b"stays"})
    report = restored(spark, taken, target, tmp_path / "run")
    assert report.ending is JobEnding.FINDINGS
    assert (report.counts["conflict"], report.counts["same"]) == (1, 1)
    assert report.counts["written"] == len(VALUES) - 2
    (finding,) = report.findings
    assert (finding["key"], finding["outcome"]) == ("n0/k000", "conflict")
    expected = VALUES | {"n0/k000": b"other", "mine": b"stays"}
    assert contents(target, list(expected)) == expected
    (row,) = dataframes.outcomes(spark, tmp_path / "run").collect()
    assert (row.key, row.outcome) == ("n0/k000", "conflict")


class Editing(NoProgress):
    """Lets a properties file name another store once the run has begun."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._text = text

    @override
    def begin(self, manifest: Manifest) -> None:
        self._file.write_text(self._text)


@pytest.mark.parametrize("fence", [True, False])
def test_a_target_file_that_is_edited_while_the_source_is_read(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path, *, fence: bool
) -> None:
    other = embedded(tmp_path, "other")
    before = target.read_text()
    options = restore_and_migrate.RestoreOptions(
        source=endpoint(source), target=endpoint(target), out=tmp_path / "run", fence=fence
    )
    with pytest.raises(UsageError, match="not the store that this run wrote to"):
        restore_and_migrate.run(spark, options, Editing(target, other.read_text()))
    target.write_text(before)
    assert contents(other, list(VALUES)) == contents(target, list(VALUES)) == {}
    report = restore_and_migrate.run(spark, replace(options, resume=True))
    assert report.counts["written"] == len(VALUES)


def test_a_run_is_done_once_its_report_is_written(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path
) -> None:
    """A run that is done cannot be resumed, so nothing would name its conflicts later."""
    fill(target, {"n0/k000": b"other"})
    taking = snapshot.SnapshotOptions(source=endpoint(source), out=tmp_path / "s")
    take = partial(snapshot.run, spark, replace(taking, resume=True))
    expect_done_with_the_report(tmp_path / "s", taking.job, taking.arguments(), take)
    migrating = restore_and_migrate.RestoreOptions(
        source=endpoint(source), target=endpoint(target), out=tmp_path / "run"
    )
    migrate = partial(restore_and_migrate.run, spark, replace(migrating, resume=True))
    arguments = migrating.arguments()
    report = expect_done_with_the_report(tmp_path / "run", migrating.job, arguments, migrate)
    assert report.ending is JobEnding.FINDINGS
    assert [one["key"] for one in report.findings] == ["n0/k000"]
    assert (report.counts["conflict"], report.counts["written"]) == (1, len(VALUES) - 1)


def test_part_of_a_snapshot(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    part = SnapshotEndpoint("s", taken.folder, "n1")
    report = restored(spark, part, target, tmp_path / "run")
    wanted = {key: value for key, value in VALUES.items() if key.startswith("n1/")}
    assert report.counts["written"] == report.counts["rows"] == len(wanted)
    assert contents(target, list(VALUES)) == wanted


def test_a_part_outside_of_a_snapshot(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    part = store_endpoint(parse_endpoint(f"{source}#n1"))
    snapshot.run(spark, snapshot.SnapshotOptions(source=part, out=tmp_path / "s"))
    assert dataframes.records(spark, f"{tmp_path / 's'}#n1").count() == 33
    with pytest.raises(UsageError, match="n2"):
        dataframes.records(spark, f"{tmp_path / 's'}#n2")


def _resize_last(fields: dict[str, Any], size: int) -> None:
    fields["waves"][-1]["files"][-1]["size"] = size


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_snapshot_writes_nothing(
    spark: SparkSession,
    taken: SnapshotEndpoint,
    target: Path,
    tmp_path: Path,
    damage: str,
) -> None:
    """Also where a file is whole and of the right size, but another one."""
    first, *_, last = (
        taken.folder / file.name
        for wave in read_manifest(taken.folder).waves
        for file in wave.files
    )
    if damage == "missing":
        last.unlink()
    elif damage == "short":
        os.truncate(last, last.stat().st_size - 1)
    else:
        last.write_bytes(first.read_bytes())
        edit_manifest(taken.folder, partial(_resize_last, size=last.stat().st_size))
    with pytest.raises(StoreError, match="wave"):
        restored(spark, taken, target, tmp_path / "run")
    assert contents(target, list(VALUES)) == {}


def test_a_snapshot_that_is_not_done_is_refused(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    edit_manifest(taken.folder, lambda fields: fields.update(done=False))
    with pytest.raises(StoreError, match="--resume"):
        restored(spark, taken, target, tmp_path / "run")


@pytest.mark.parametrize("rate", [0, -1.0])
def test_a_rate_that_is_none(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path, rate: float
) -> None:
    with pytest.raises(UsageError, match="rate"):
        restored(spark, taken, target, tmp_path / "run", rate=rate)
    assert not (tmp_path / "run").exists()


def test_a_namespace_without_need_of_one(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="not raw"):
        restored(spark, taken, target, tmp_path / "run", into="n")


_DRIVER = """
import sys
from pathlib import Path
from kip30.pipeline.transfer import restore_and_migrate
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, parse_endpoint, target_endpoint
from kip30.pipeline.spark.session import open_session
taken, target, out = sys.argv[1:]
options = restore_and_migrate.RestoreOptions(
    source=SnapshotEndpoint("s", Path(taken), ""),
    target=target_endpoint(parse_endpoint(target)),
    out=Path(out),
    rate=20.0,
)
restore_and_migrate.run(open_session("local[2]"), options)
"""


@pytest.mark.large
def test_a_killed_driver_is_resumed(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    """P12: each key is written once, and counts as written."""
    words = [str(taken.folder), str(target), str(tmp_path / "run")]
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, *words], start_new_session=True)
    try:
        eventually(
            lambda: len(contents(target, list(VALUES))) > 5,
            within=60 * time_scale(),
            what="some keys are there",
        )
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    before = contents(target, list(VALUES))
    assert 5 < len(before) < len(VALUES)
    report = restored(spark, taken, target, tmp_path / "run", resume=True, rate=20.0)
    assert report.ending is JobEnding.DONE
    assert report.counts["written"] == len(VALUES)
    assert contents(target, list(VALUES)) == VALUES


def test_a_run_without_a_fence(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    report = restored(spark, taken, target, tmp_path / "run", fence=False)
    assert (report.ending, report.counts["written"]) == (JobEnding.DONE, len(VALUES))
    with PluginLocator().startup(target) as locator, pytest.raises(KeyExistsError):
        locator.storage(BYTES).put("n0/k000", b"")


def test_the_records_of_an_endpoint_for_a_notebook(
    spark: SparkSession, taken: SnapshotEndpoint, source: Path
) -> None:
    live = dataframes.records(spark, f"{source}#n1")
    kept = dataframes.records(spark, f"{taken.folder}#n1")
    expected = {key: value for key, value in VALUES.items() if key.startswith("n1/")}
    for found in (live, kept):
        assert {row.key: bytes(row.value) for row in found.collect()} == expected


@pytest.mark.parametrize("left", ["lock", "manifest.json.new"])
def test_a_migration_that_was_killed_while_its_snapshot_began_is_resumed(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path, left: str
) -> None:
    options = restore_and_migrate.RestoreOptions(
        source=endpoint(source), target=endpoint(target), out=tmp_path / "run"
    )
    RunDirectory(options.out, options.job, options.arguments()).close()
    folder = options.out / SNAPSHOT_FOLDER
    folder.mkdir(mode=0o700)
    (folder / left).touch()
    report = restore_and_migrate.run(spark, replace(options, resume=True))
    assert report.ending is JobEnding.DONE
    assert contents(target, list(VALUES)) == VALUES


def test_a_restore_is_not_resumed_with_another_snapshot_in_the_same_folder(  # noqa: PLR0913, PLR0917  fixtures
    spark: SparkSession,
    taken: SnapshotEndpoint,
    source: Path,
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore_and_migrate, "run_waves", _stopped)
    with pytest.raises(UnavailableError):
        restored(spark, taken, target, tmp_path / "run")
    monkeypatch.undo()
    before = read_manifest(taken.folder).run
    shutil.rmtree(taken.folder)
    snapshot.run(spark, snapshot.SnapshotOptions(source=endpoint(source), out=taken.folder))
    with pytest.raises(UsageError, match=f"was begun with {before}: name another folder"):
        restored(spark, taken, target, tmp_path / "run", resume=True)


def _stopped(*_: object) -> None:
    raise UnavailableError("the test stops it here")


@pytest.mark.parametrize("number", [100, pytest.param(600, marks=pytest.mark.large)])
def test_values_of_the_greatest_size(
    spark: SparkSession, target: Path, tmp_path: Path, number: int
) -> None:
    """Spark's own reader took thousands of rows at a time, regardless of their size."""
    large = {f"large/{one:03}": os.urandom(250_000) for one in range(number)}
    source = embedded(tmp_path, "large")
    for first in range(0, number, 20):
        fill(source, dict(islice(large.items(), first, first + 20)))
    options = snapshot.SnapshotOptions(source=endpoint(source), out=tmp_path / "s")
    report = snapshot.run(spark, options)
    assert report.counts["value_bytes"] == number * 250_000
    report = restored(spark, SnapshotEndpoint("s", tmp_path / "s", ""), target, tmp_path / "run")
    assert report.ending is JobEnding.DONE
    for first in range(0, number, 20):
        part = dict(islice(large.items(), first, first + 20))
        assert contents(target, list(part)) == part


def test_a_restore_may_replace_what_is_there(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    fill(target, {"n0/k000": b"other", "n1/k001": VALUES["n1/k001"]})
    report = restored(spark, taken, target, tmp_path / "run", on_conflict=OnConflict.REPLACE)
    assert report.ending is JobEnding.DONE
    assert (report.counts["written"], report.counts["same"]) == (len(VALUES) - 1, 1)
    assert contents(target, list(VALUES)) == VALUES


def test_a_restore_may_end_at_a_conflict(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    fill(target, {"n0/k000": b"other"})
    report = restored(spark, taken, target, tmp_path / "run", on_conflict=OnConflict.FAIL)
    assert report.ending is JobEnding.INCOMPLETE
    assert "1 keys have other values at the target, such as n0/k000" in report.reason
    assert contents(target, ["n0/k000"]) == {"n0/k000": b"other"}


def test_keys_may_go_to_other_namespaces(
    spark: SparkSession, taken: SnapshotEndpoint, target: Path, tmp_path: Path
) -> None:
    moves = (("n0", "new/zero"), ("n1", ""))
    report = restored(spark, taken, target, tmp_path / "run", moves=moves)
    assert report.ending is JobEnding.DONE
    expected = {
        key.replace("n0/", "new/zero/").removeprefix("n1/"): value for key, value in VALUES.items()
    }
    assert contents(target, list(expected)) == expected
    with pytest.raises(InvalidNameError):
        restored(spark, taken, target, tmp_path / "x", moves=(("a", "b/"),))


def test_keys_that_would_become_one_key_are_rejected(
    spark: SparkSession, target: Path, tmp_path: Path
) -> None:
    """In any order of the tasks, none of their values replaces that of the target."""
    config = embedded(tmp_path, "mapped")
    alike = ("app/x", "low/x", "prod/x")
    fill(config, dict.fromkeys((*alike, "app/y", "prod/z"), b"new"))
    fill(target, {"prod/x": b"before"})
    report = restored(
        spark,
        endpoint(config),
        target,
        tmp_path / "run",
        moves=(("app", "prod"), ("low", "prod")),
        on_conflict=OnConflict.REPLACE,
    )
    assert report.ending is JobEnding.FINDINGS
    assert (report.counts["rejected"], report.counts["written"], report.counts["rows"]) == (3, 2, 5)
    assert {one["key"] for one in report.findings} == set(alike)
    assert all("prod/x" in one["detail"] for one in report.findings)
    expected = {"prod/x": b"before", "prod/y": b"new", "prod/z": b"new"}
    assert contents(target, [*expected, *alike]) == expected
