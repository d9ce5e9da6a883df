"""All jobs, with runs in folders whose names mean something to Spark, to a shell or in a URL."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30.pipeline import dataframes
from kip30.pipeline.compare.diff import DiffOptions
from kip30.pipeline.compare.diff import run as diff
from kip30.pipeline.compare.repair import RepairOptions
from kip30.pipeline.compare.repair import run as repair
from kip30.pipeline.follow.feed import run as feed
from kip30.pipeline.follow.feed_options import FeedOptions
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint, target_endpoint
from kip30.pipeline.transfer.restore_and_migrate import RestoreOptions
from kip30.pipeline.transfer.restore_and_migrate import run as migrate
from tests.gate.sizes import others_large

from .feeding import storage_of
from .snapshots import embedded
from .stores import contents, fill

VALUES = {f"n/k{number}": b"%d" % number for number in range(20)}


@pytest.mark.parametrize("name", others_large(["a[1]{2,3}*?\\", "50%20 ü=x:y", "$HOME '^\""]))
def test_all_jobs_in_folders_of_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    for part in ("source", "target"):
        (tmp_path / part).mkdir()
    source_file, target_file = embedded(tmp_path / "source"), embedded(tmp_path / "target")
    fill(source_file, VALUES)
    source = store_endpoint(parse_endpoint(str(source_file)))
    target = target_endpoint(parse_endpoint(str(target_file)))
    moved = migrate(spark, RestoreOptions(source=source, target=target, out=folder / "moved"))
    assert moved.ending is JobEnding.DONE
    assert dataframes.outcomes(spark, folder / "moved").count() == 0
    with storage_of(source_file) as storage:
        storage.set("n/k1", b"changed")
        storage.set("n/later", b"")
    options = FeedOptions(
        source=source, after=folder / "moved", target=target, out=folder / "fed", once=True
    )
    assert feed(spark, options).ending is JobEnding.DONE
    with storage_of(target_file) as storage:
        storage.set("n/k2", b"by another")
    compared = diff(spark, DiffOptions(left=source, right=target, out=folder / "compared"))
    assert (compared.ending, compared.counts["differs"]) == (JobEnding.FINDINGS, 1)
    repair(spark, RepairOptions(diff=folder / "compared", out=folder / "repaired", apply=True))
    expected = VALUES | {"n/k1": b"changed", "n/later": b""}
    assert contents(target_file, list(expected)) == expected
