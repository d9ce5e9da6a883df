"""From each store into each, and from a real Kafka into each: the data arrives unchanged."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30.driver.scanning import View
from kip30.pipeline import dataframes
from kip30.pipeline.compare import diff
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.stores.endpoints import (
    SnapshotEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.runtime.resolution import scanner
from kip30_conformance.polling import eventually
from tests.gate.sizes import others_large

from .corpus import corpus
from .kafka_broker import broker_on
from .stores import STORES, Stores, contents, fill, rewriting, stores_in

CORPUS = corpus()
PAIRS = [
    pytest.param(source, target, marks=[pytest.mark.large] * (source == target))
    for source in STORES
    for target in STORES
]
SnapshotOf = Callable[[str], SnapshotEndpoint]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(scope="module")
def snapshot_of(
    stores: Stores, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> SnapshotOf:
    """Return a function that returns a snapshot of the corpus in a store."""
    folder = tmp_path_factory.mktemp("snapshots")

    @cache
    def taken(store: str) -> SnapshotEndpoint:
        config = stores.config(store, "corpus")
        fill(config, CORPUS)
        source = target_endpoint(parse_endpoint(str(config)))
        options = snapshot.SnapshotOptions(source=source, out=folder / store, span_rows=200)
        report = snapshot.run(spark, options)
        assert (report.ending, report.counts["rows"]) == (JobEnding.DONE, len(CORPUS)), report
        return SnapshotEndpoint(store, folder / store, "")

    return taken


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_snapshot_of_one_store_is_restored_in_another(  # noqa: PLR0913, PLR0917  fixtures
    spark: SparkSession,
    stores: Stores,
    snapshot_of: SnapshotOf,
    source: str,
    target: str,
    tmp_path: Path,
) -> None:
    """P01."""
    config = stores.config(target, f"from-{source}")
    endpoint = target_endpoint(parse_endpoint(str(config)))
    options = restore_and_migrate.RestoreOptions(
        source=snapshot_of(source), target=endpoint, out=tmp_path / "restore"
    )
    report = restore_and_migrate.run(spark, options)
    assert report.ending is JobEnding.DONE, report
    assert report.counts["written"] == report.counts["rows"] == len(CORPUS)
    compared = diff.DiffOptions(left=snapshot_of(source), right=endpoint, out=tmp_path / "diff")
    assert diff.run(spark, compared).ending is JobEnding.DONE
    if source == target:  # once, by the storage that users have
        assert contents(config, sorted(CORPUS)) == CORPUS


@pytest.mark.parametrize("store", STORES)
def test_a_snapshot_while_others_write(
    spark: SparkSession, stores: Stores, store: str, tmp_path: Path
) -> None:
    """P05: a point in time is exactly that; elsewhere keys that do not change are right."""
    config = stores.config(store, "live")
    stable = {f"stable/k{number:04}": b"%d" % number for number in range(400)}
    moving = [[f"moving/{writer}-{number}" for number in range(10)] for writer in range(4)]
    fill(config, stable)
    # On Cassandra what was written shortly before the position counts as moving, too.
    eventually(lambda: not moving_rows(config), within=60, what="all writes are settled")
    source = store_endpoint(parse_endpoint(str(config)))
    options = snapshot.SnapshotOptions(source=source, out=tmp_path / "run", span_rows=40)
    with rewriting(config, moving):
        report = snapshot.run(spark, options)
    rows = dataframes.records(spark, str(tmp_path / "run")).collect()
    found = {row.key: bytes(row.value) for row in rows}
    assert len(found) == len(rows) == report.counts["rows"]
    assert {key: found[key] for key in stable} == stable
    marked = {row.key for row in rows if row.moving}
    assert len(marked) == report.counts["moving"]
    assert not marked & stable.keys()
    if report.facts["consistency"] == "point-in-time":
        assert not marked
        assert [len({found[key] for key in keys}) <= 2 for keys in moving] == [True] * 4


def moving_rows(config: Path) -> int:
    """Return how many records may have been changed since this moment, by the store of *config*."""
    with scanner(config, View()) as store:
        at = store.position()
        pages = (page for span in store.plan(at, 1_000) for page in store.scan(span, at))
        return sum(sum(store.changed_since(page, at)) for page in pages)


@pytest.fixture(scope="module")
def kafka(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the server.properties of a Kafka with topics, on the ZooKeeper of the stores."""
    address = stores.ensemble("zookeeper").nodes[0].address
    with broker_on(f"{address}/kafka", tmp_path_factory.mktemp("kafka")) as broker:
        broker.create_topic("t1", 2, retention_ms="60000")
        broker.create_topic("t-2.x")
        broker.add_user("alice", "geheim")
        yield broker.properties


@pytest.mark.parametrize("target", others_large(STORES))
def test_the_tree_of_a_kafka_is_taken_over(
    spark: SparkSession, stores: Stores, kafka: Path, target: str, tmp_path: Path
) -> None:
    """P41."""
    source = parse_endpoint(f"raw:{kafka}#/config")
    endpoint = target_endpoint(parse_endpoint(str(stores.config(target, "kafka"))))
    options = restore_and_migrate.RestoreOptions(
        source=source, target=endpoint, into="kafka", out=tmp_path / "run"
    )
    report = restore_and_migrate.run(spark, options)
    assert report.ending is JobEnding.DONE, report
    topics = contents(stores.config(target, "kafka"), ["kafka/topics/t1", "kafka/users/alice"])
    assert json.loads(topics["kafka/topics/t1"])["config"] == {"retention.ms": "60000"}
    assert b"SCRAM-SHA-256" in topics["kafka/users/alice"]
    assert report.counts["directory"] > 3
    compared = diff.DiffOptions(left=source, right=endpoint, into="kafka", out=tmp_path / "diff")
    assert diff.run(spark, compared).ending is JobEnding.DONE


@pytest.mark.large
def test_ephemeral_nodes_of_a_kafka_are_skipped(
    spark: SparkSession, stores: Stores, kafka: Path, tmp_path: Path
) -> None:
    """P41: its brokers and its controller are there as long as their sessions."""
    options = restore_and_migrate.RestoreOptions(
        source=parse_endpoint(f"raw:{kafka}"),
        target=target_endpoint(parse_endpoint(str(stores.config("embedded", "whole")))),
        into="kafka",
        out=tmp_path / "run",
    )
    report = restore_and_migrate.run(spark, options)
    assert (report.ending, report.counts["ephemeral"]) == (JobEnding.DONE, 2), report
    found = contents(stores.config("embedded", "whole"), ["kafka/controller", "kafka/cluster/id"])
    assert found.keys() == {"kafka/cluster/id"}
