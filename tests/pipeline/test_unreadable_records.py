"""Records that cannot be read, and keys below nodes that cannot be listed: no job takes a guess."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from pyspark.sql import SparkSession

from kip30.pipeline import restore_and_migrate
from kip30.pipeline.endpoints import parse_endpoint, target_endpoint
from kip30.pipeline.report import JobEnding, Report
from kip30.pipeline.snapshot_files import SnapshotFiles
from tests.unit.etcd.admin import Admin

from .snapshots import take
from .stores import Stores, contents, fill, stores_in

VALUES = {"n1/k": b"1", "n1/low/k": b"2", "n2/k": b"3", "top": b"4"}
_OWNER = [make_digest_acl("alice", "geheim-1", all=True)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(scope="module")
def kazoo(stores: Stores) -> Iterator[Any]:
    hosts = stores.settings("zookeeper")["zookeeper.connect"]
    client: Any = KazooClient(hosts=hosts, auth_data=[("digest", "alice:geheim-1")])
    client.start()
    yield client
    client.stop()
    client.close()


def restored(spark: SparkSession, part: str, target: Path, out: Path) -> Report:
    options = restore_and_migrate.RestoreOptions(
        source=parse_endpoint(part), target=target_endpoint(parse_endpoint(str(target))), out=out
    )
    return restore_and_migrate.run(spark, options)


def rejected_of(spark: SparkSession, part: str) -> list[str]:
    """Return the places of what is rejected in *part* of a snapshot."""
    files = SnapshotFiles(spark, parse_endpoint(part))  # type: ignore[arg-type]
    name = "path" if "path" in files.rows().columns else "key"
    rows = files.rows().where("rejected IS NOT NULL").select(name).collect()
    return sorted(key if isinstance(key, str) else bytes(key).decode() for (key,) in rows)


@pytest.mark.medium
def test_a_part_of_a_snapshot_has_its_damaged_records(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    config, target = stores.config("etcd", "damaged"), stores.config("embedded", "damaged")
    fill(config, VALUES)
    place = "/damaged/kv/n1/k"
    Admin(stores.ensemble("etcd").nodes[0].address).put(place, b"damaged")
    out = tmp_path / "snapshot"
    assert take(spark, config, out).counts["rejected"] == 1
    report = restored(spark, f"{out}#n1", target, tmp_path / "n1")
    assert (report.ending, report.counts["rejected"]) == (JobEnding.FINDINGS, 1)
    assert [one["key"] for one in report.findings] == [place]
    assert rejected_of(spark, f"{out}#n1") == [place]
    other = restored(spark, f"{out}#n2", target, tmp_path / "n2")
    assert (other.ending, other.counts["rejected"]) == (JobEnding.DONE, 0)
    assert rejected_of(spark, f"{out}#n2") == []
    assert contents(target, list(VALUES)) == {"n1/low/k": b"2", "n2/k": b"3"}


@pytest.mark.medium
def test_a_part_of_a_snapshot_has_the_nodes_that_hide_it(
    spark: SparkSession, stores: Stores, kazoo: Any, tmp_path: Path
) -> None:
    config, target = stores.config("zookeeper", "closed"), stores.config("embedded", "closed")
    fill(config, VALUES)
    kazoo.set_acls("/closed/kv/n1", _OWNER)
    out, raw = tmp_path / "snapshot", tmp_path / "raw"
    take(spark, config, out)
    report = restored(spark, f"{out}#n1", target, tmp_path / "n1")
    assert (report.ending, report.counts["rejected"]) == (JobEnding.FINDINGS, 1)
    assert rejected_of(spark, f"{out}#n1") == ["/closed/kv/n1"]
    assert rejected_of(spark, f"{out}#n1/low") == ["/closed/kv/n1"]
    assert rejected_of(spark, f"{out}#n2") == []
    take(spark, f"raw:{config}#/closed", raw)
    assert rejected_of(spark, f"{raw}#/closed/kv/n1/any/deeper") == ["/closed/kv/n1"]
    assert rejected_of(spark, f"{raw}#/closed/kv/n2") == []
