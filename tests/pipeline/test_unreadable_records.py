"""Records that cannot be read, and keys below nodes that cannot be listed: no job takes a guess."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from pyspark.sql import SparkSession

from kip30.pipeline.compare import diff, repair
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import parse_endpoint, target_endpoint
from kip30.pipeline.transfer import restore_and_migrate
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles
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


def made_equal(
    spark: SparkSession, left: str, right: str, folder: Path, into: str | None = None
) -> tuple[dict[str, str], Report]:
    """Return the findings of a diff, and the report of its repair, which deletes what is extra."""
    compared, planned = folder / "diff", folder / "plan"
    sides = diff.DiffOptions(
        left=parse_endpoint(left), right=parse_endpoint(right), into=into, out=compared
    )
    found = diff.run(spark, sides)
    repair.run(spark, repair.RepairOptions(diff=compared, out=planned))
    options = repair.RepairOptions(
        diff=compared, out=folder / "done", apply=True, plan=planned, delete_extra=True
    )
    kinds = {one["key"]: one["outcome"] for one in found.findings}
    return kinds, repair.run(spark, options)


@pytest.mark.medium
def test_keys_below_a_node_that_cannot_be_listed_are_not_deleted(
    spark: SparkSession, stores: Stores, kazoo: Any, tmp_path: Path
) -> None:
    """Of a tree with a mapping, and of a snapshot of kip30's own keys."""
    for path in ("/tree/closed/k", "/tree/d/c0", "/tree/d/c1"):
        kazoo.create(path, path.encode(), makepath=True)
    kazoo.set_acls("/tree/closed", _OWNER)
    kazoo.set_acls("/tree/d/c0", _OWNER)
    names = ("closed", "closed/k", "closed/low/k", "d/c0", "d/c0/low", "d/c1", "d/extra", "closed2")
    keys = {f"old/{name}": b"/tree/%b" % name.encode() for name in names}
    target, config = stores.config("embedded", "tree"), stores.config("zookeeper", "hidden")
    fill(target, keys)
    raw = f"raw:{config}#/tree"
    found, report = made_equal(spark, raw, f"{target}#old", tmp_path / "a", into="old")
    extra = {"old/d/extra", "old/closed2"}
    hidden = set(keys) - extra - {"old/d/c1"}
    places = dict.fromkeys(("/tree/closed", "/tree/d/c0"), "rejected")
    assert found == dict.fromkeys(hidden, "unsettled") | dict.fromkeys(extra, "only_right") | places
    assert (report.ending, report.counts["written"]) == (JobEnding.FINDINGS, len(extra))
    assert set(contents(target, list(keys))) == set(keys) - extra

    fill(config, VALUES)
    kazoo.set_acls("/hidden/kv/n1", _OWNER)
    take(spark, config, tmp_path / "snapshot")
    copy = stores.config("embedded", "hidden")
    fill(copy, VALUES | {"n2/extra": b"x"})
    _, report = made_equal(spark, str(tmp_path / "snapshot"), str(copy), tmp_path / "b")
    assert (report.counts["written"], report.counts["unsettled"]) == (1, 1)
    assert contents(copy, [*VALUES, "n2/extra"]) == VALUES


@pytest.mark.medium
def test_the_key_of_a_damaged_record_is_not_deleted(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    config, target = stores.config("etcd", "left"), stores.config("embedded", "left")
    for one in (config, target):
        fill(one, VALUES)
    Admin(stores.ensemble("etcd").nodes[0].address).put("/left/kv/n1/k", b"damaged")
    take(spark, config, tmp_path / "snapshot")
    found, report = made_equal(spark, f"{tmp_path / 'snapshot'}#n1", f"{target}#n1", tmp_path)
    assert found == {"/left/kv/n1/k": "rejected", "n1/k": "unsettled"}
    assert (report.counts["delete"], report.counts["unsettled"]) == (0, 1)
    assert contents(target, list(VALUES)) == VALUES


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
