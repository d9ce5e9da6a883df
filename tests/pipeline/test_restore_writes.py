"""Writes of the tasks of a restore, in stores that reject or stand still."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30 import PluginLocator
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, parse_endpoint, target_endpoint
from kip30.pipeline.transfer import restore_and_migrate
from kip30.pipeline.transfer.restore_and_migrate import RestoreOptions
from kip30.pipeline.write.run_leader import service_of
from kip30_conformance.polling import eventually
from tests.unit.consul.admin import Admin

from .snapshots import take
from .stores import Stores, contents, fill, stores_in

VALUES = {f"n/k{number:03}": b"%d" % number for number in range(100)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


def taken(
    spark: SparkSession, stores: Stores, folder: Path, *, rows: int, store: str = "embedded"
) -> SnapshotEndpoint:
    """Return a snapshot of `VALUES`, and of all else that is there, in files of *rows* rows."""
    config = stores.config(store, f"from-{folder.name}")
    fill(config, VALUES)
    take(spark, config, folder / "taken", span_rows=rows)
    return SnapshotEndpoint("taken", folder / "taken", "")


def restored(
    spark: SparkSession,
    source: SnapshotEndpoint,
    target: Path,
    **more: object,
) -> Report:
    endpoint = target_endpoint(parse_endpoint(str(target)))
    out = source.folder.with_name("run")
    options = RestoreOptions(source=source, target=endpoint, out=out, **more)  # type: ignore[arg-type]
    return restore_and_migrate.run(spark, options)


def test_a_rejected_record_of_a_snapshot_is_a_finding_and_is_not_written(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """P11: a record that the scan rejected is not written under any key."""
    source_config = stores.config("consul", f"from-{tmp_path.name}")
    foreign = f"from-{tmp_path.name}/kv/n/foreign"
    Admin(stores.ensemble("consul").nodes[0].port).put(foreign, b"no record of kip30's")
    source = taken(spark, stores, tmp_path, rows=50, store="consul")
    target = stores.config("embedded", "foreign")
    report = restored(spark, source, target)
    assert report.ending is JobEnding.FINDINGS
    counted = [report.counts[name] for name in ("written", "rejected", "conflict")]
    assert counted == [len(VALUES), 1, 0]
    assert [(one["key"], one["outcome"]) for one in report.findings] == [(foreign, "rejected")]
    assert contents(target, [*VALUES, foreign]) == VALUES
    assert contents(source_config, list(VALUES)) == VALUES


def test_writes_without_an_answer_are_decided_again(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """P16: a wave with such writes is not done, and is repeated in another term.

    A request that is still under way then has an outdated fence.
    """
    source = taken(spark, stores, tmp_path, rows=50)
    target = stores.config("embedded", "still")
    target.write_text(f"{target.read_text()}plugin.operation.timeout.ms={TIMEOUT * 1000:.0f}\n")
    fill(target, {})
    with ThreadPoolExecutor() as pool:
        freezing = pool.submit(freeze, target)
        report = restored(spark, source, target, rate=40.0)
        freezing.result()
    (wave,) = report.waves
    assert (report.ending, wave["attempts"]) == (JobEnding.DONE, 2)
    assert [report.counts[name] for name in ("written", "unknown")] == [len(VALUES), 0]
    assert contents(target, list(VALUES)) == VALUES
    with PluginLocator().startup(target) as locator:
        election = locator.leader_election(service_of(report.run))
        with election.lead("next", "", timeout_seconds=60) as term:
            assert term.epoch == 3


TIMEOUT = 1.0


def freeze(target: Path) -> None:
    """Lock an embedded store for longer than a write waits, once some writes are done."""
    eventually(lambda: contents(target, list(VALUES)), within=60, what="the first keys are there")
    folder = StoreConfig.of_file(target).resolve().settings.directory
    with closing(sqlite3.connect(folder / "kip30.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(2.5 * TIMEOUT)
