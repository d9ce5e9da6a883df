"""A run in a folder that not all workers share: what they wrote elsewhere is not taken for nothing.

Spark commits without an error then, and this process sees no file of theirs, or only some.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30.pipeline.compare import diff, repair
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.manifest import DataFile
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.transfer import restore_and_migrate

from .stores import contents, fill
from .test_restore import embedded, endpoint

LEFT = {f"n/k{number:03}": b"%d" % number for number in range(60)}
RIGHT = {f"n/k{number:03}": b"other" for number in range(40)}
SHARED = "must be on a file system"


@contextmanager
def lost(first: int | None) -> Iterator[None]:
    """Hide the *first* files of each folder that Spark writes, or all, until the block ends."""
    files_in = RunDirectory.files_in

    def found(run: RunDirectory, folder: Path) -> tuple[DataFile, ...]:
        files = files_in(run, folder)
        assert first is None or len(files) > first
        return () if first is None else files[first:]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunDirectory, "files_in", found)
        yield


@pytest.fixture
def left(tmp_path: Path) -> Path:
    file = embedded(tmp_path, "left")
    fill(file, LEFT)
    return file


@pytest.fixture
def right(tmp_path: Path) -> Path:
    file = embedded(tmp_path, "right")
    fill(file, RIGHT)
    return file


def test_no_sides_are_called_equal(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    options = diff.DiffOptions(
        left=endpoint(left), right=endpoint(right), out=tmp_path / "run", full=True
    )
    with lost(None):
        report = diff.run(spark, options)
    assert report.ending is JobEnding.INCOMPLETE
    assert SHARED in report.reason
    report = diff.run(spark, replace(options, resume=True))
    assert (report.ending, report.counts["differs"]) == (JobEnding.FINDINGS, len(RIGHT))


def test_no_outcomes_of_a_migration_are_left_out(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    options = restore_and_migrate.RestoreOptions(
        source=endpoint(left), target=endpoint(right), out=tmp_path / "run", span_rows=10
    )
    with lost(1):
        report = restore_and_migrate.run(spark, options)
    assert report.ending is JobEnding.INCOMPLETE
    assert SHARED in report.reason
    report = restore_and_migrate.run(spark, replace(options, resume=True))
    assert (report.ending, report.counts["conflict"]) == (JobEnding.FINDINGS, len(RIGHT))
    assert report.counts["written"] == len(LEFT) - len(RIGHT)


def test_no_outcomes_of_a_repair_are_left_out(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    compared = tmp_path / "compared"
    diff.run(spark, diff.DiffOptions(left=endpoint(left), right=endpoint(right), out=compared))
    options = repair.RepairOptions(diff=compared, out=tmp_path / "run", apply=True)
    with lost(1):
        report = repair.run(spark, options)
    assert report.ending is JobEnding.INCOMPLETE
    assert SHARED in report.reason
    report = repair.run(spark, replace(options, resume=True))
    assert (report.ending, report.counts["written"]) == (JobEnding.DONE, len(LEFT))
    assert contents(right, list(LEFT)) == LEFT
