"""Snapshots of all stores, while others write and while servers forget."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30 import BYTES, PluginLocator
from kip30.driver.scanning import ScanDriver
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import Digest
from kip30.pipeline.run.report import JobEnding
from kip30.scanning import scanner
from kip30_conformance.polling import eventually
from tests.unit.etcd.admin import Admin

from .snapshots import Hooks, rows_of, take, values_of
from .stores import STORES, Stores, fill, stores_in

VALUES = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(90)}
MOVING = [f"n{number % 3}/m{number:03}" for number in range(12)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


def moved(config: Path, value: bytes) -> None:
    with PluginLocator().startup(config) as client:
        storage = client.storage(BYTES)
        for key in MOVING:
            storage.update(key, value)


def is_settled(store: ScanDriver) -> bool:
    """Return whether no record counts as changed after a position that is taken now."""
    at = store.position()
    pages = [page for span in [*store.plan(at, 1_000)] for page in store.scan(span, at)]
    return not any(is_new for page in pages for is_new in store.changed_since(page, at))


@pytest.mark.parametrize("store", STORES)
def test_writers_between_the_plan_and_the_waves(
    spark: SparkSession, stores: Stores, tmp_path: Path, store: str
) -> None:
    """P05: exactly the position, or records that changed after it are marked and counted."""
    config = stores.config(store, "moving")
    fill(config, VALUES | dict.fromkeys(MOVING, b"before"))
    with scanner(config) as reader:
        eventually(lambda: is_settled(reader), within=30, what="no record is new to a scan")
    out = tmp_path / "out"
    report = take(spark, config, out, Hooks(lambda: moved(config, b"after")), span_rows=20)
    values = values_of(spark, out)
    is_exact = report.facts["consistency"] == "point-in-time"
    assert is_exact == (store in {"embedded", "etcd"})
    assert values == VALUES | dict.fromkeys(MOVING, b"before" if is_exact else b"after")
    marked = {row.key for row in rows_of(spark, out, ["key", "moving"]) if row.moving}
    assert marked == (set() if is_exact else set(MOVING))
    assert report.counts["moving"] == len(marked)
    assert report.ending is JobEnding.DONE


@pytest.mark.parametrize("store", ["zookeeper", "consul", "cassandra"])
def test_everything_is_deleted_between_the_plan_and_the_waves(
    spark: SparkSession, stores: Stores, tmp_path: Path, store: str
) -> None:
    """A wave without a row ends as any other."""
    config = stores.config(store, "deleted")
    fill(config, VALUES)

    def delete() -> None:
        with PluginLocator().startup(config) as client:
            for key in VALUES:
                client.storage(BYTES).delete(key)

    out = tmp_path / "out"
    report = take(spark, config, out, Hooks(delete), span_rows=20)
    assert report.ending is JobEnding.DONE
    assert report.counts["rows"] == 0
    assert values_of(spark, out) == {}


@pytest.mark.large
def test_a_compaction_ends_the_run(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    """P06: before the first wave, and between two of them."""
    config = stores.config("etcd", "compacted")
    fill(config, VALUES)

    def compact() -> None:
        fill(config, {f"later/k{len(list(tmp_path.iterdir()))}": b""})
        stores.ensemble("etcd").compact()

    for name, hooks in (("first", Hooks(compact)), ("second", Hooks(waved=compact))):
        out = tmp_path / name
        report = take(spark, config, out, hooks, span_rows=10)
        assert report.ending is JobEnding.INCOMPLETE
        assert "compact" in report.reason
        assert not report.reason.startswith("span")
        assert values_of(spark, out).items() <= VALUES.items()
        again = take(spark, config, out, span_rows=10, resume=True)
        assert (again.ending, again.reason) == (JobEnding.INCOMPLETE, report.reason)
        assert not read_manifest(out).done
    assert len(values_of(spark, tmp_path / "second")) > 0


def test_an_empty_cluster_at_the_same_address(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """P06."""
    config = stores.config("etcd", "emptied")
    fill(config, VALUES)

    def empty() -> None:
        stores.ensemble("etcd").restart(empty=True)
        fill(config, {"n0/k000": b"other"})

    report = take(spark, config, tmp_path / "out", Hooks(empty), span_rows=10)
    assert report.ending is JobEnding.INCOMPLETE
    assert values_of(spark, tmp_path / "out") == {}


def test_foreign_records_are_rejected_as_findings(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    config = stores.config("etcd", "foreign")
    fill(config, VALUES)
    admin = Admin(stores.ensemble("etcd").nodes[0].address)
    foreign = {f"/foreign/kv/n0/f{number}" for number in range(3)}
    for key in foreign:
        admin.put(key, b"not of kip30")
    out = tmp_path / "out"
    report = take(spark, config, out, span_rows=10)
    assert report.ending is JobEnding.FINDINGS
    assert (report.counts["rejected"], report.counts["rows"]) == (3, len(VALUES))
    assert {one["key"] for one in report.findings} == foreign
    assert all(one["detail"].startswith("foreign") for one in report.findings)
    assert values_of(spark, out) == VALUES


@pytest.mark.large
def test_equal_stores_have_equal_digests(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """P03: for spans of any size."""
    digests = set[Digest]()
    for store in STORES:
        config = stores.config(store, "equal")
        fill(config, VALUES)
        for rows in (7, 10_000):
            out = tmp_path / f"{store}-{rows}"
            take(spark, config, out, span_rows=rows)
            digests.add(read_manifest(out).digest)
    assert {one.rows for one in digests} == {len(VALUES)}
    assert len(digests) == 1


@pytest.mark.parametrize("store", STORES)
def test_claims_are_not_copied(
    spark: SparkSession, stores: Stores, tmp_path: Path, store: str
) -> None:
    """P14: the epochs are noted, for a program may keep one elsewhere."""
    config = stores.config(store, "claims")
    fill(config, {"n/k": b"v"})
    with PluginLocator().startup(config) as locator:
        locator.group_membership("g").join("m", "")
        election = locator.leader_election("s")
        election.nominate("c", "")
        term = election.leadership("c")
        assert term is not None
        take(spark, config, tmp_path / "run", show_claims=True)
    assert values_of(spark, tmp_path / "run") == {"n/k": b"v"}
    assert read_manifest(tmp_path / "run").source["epochs"] == {"s": term.epoch}
    lines = (tmp_path / "run" / "claims.jsonl").read_text().splitlines()
    claims = {(one["kind"], *one["names"]) for one in map(json.loads, lines)}
    assert claims == {("member", "g", "m"), ("leader", "s", "c"), ("epoch", "s")}
