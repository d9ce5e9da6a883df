"""Following a tree or a prefix of another program into keys, until a cut-over."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from pyspark.sql import SparkSession

from kip30 import BYTES, PluginLocator, UsageError
from kip30.pipeline.compare import diff, repair
from kip30.pipeline.follow import feed
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import (
    StoreEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from tests.unit.etcd.admin import Admin

from .snapshots import Hooks
from .stores import Stores, contents, stores_in

_OWNER = "alice", "geheim-1"
INTO = "old"
Feed = Callable[..., Report]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture
def target(stores: Stores, tmp_path: Path) -> Path:
    return stores.config("embedded", tmp_path.name)


@pytest.fixture
def zookeeper(stores: Stores, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """Yield a client of another program, and the path below which it makes a tree."""
    client: Any = KazooClient(
        hosts=stores.settings("zookeeper")["zookeeper.connect"],
        auth_data=[("digest", ":".join(_OWNER))],
    )
    client.start()
    top = f"/{tmp_path.name}"
    for path in ("", "/d", "/leaf", "/closed"):
        client.create(f"{top}{path}", None)
    for path in ("/d/c0", "/d/c1", "/closed/k"):
        client.create(f"{top}{path}", path.encode())
    client.create(f"{top}/held", b"", ephemeral=True)
    yield client, top
    client.stop()
    client.close()


def raw(stores: Stores, store: str, under: str) -> StoreEndpoint:
    return store_endpoint(parse_endpoint(f"raw:{stores.config(store, 'x')}#{under}"))


def written_to(target: Path) -> StoreEndpoint:
    return target_endpoint(parse_endpoint(str(target)))


def followed(
    spark: SparkSession, source: StoreEndpoint, target: Path, out: Path, **more: Any
) -> Report:
    options = feed.FeedOptions(
        source=source,
        into=INTO,
        target=written_to(target),
        out=out,
        once=True,
        resume=out.exists(),
        **more,
    )
    return feed.run(spark, options)


def once(work: Callable[[], object]) -> Callable[[], None]:
    """Return a function that does *work* when it is first called, and nothing after that."""
    left = [work]

    def call() -> None:
        while left:
            left.pop()()

    return call


def keys_of(target: Path) -> dict[str, bytes]:
    with PluginLocator().startup(target) as locator:
        storage = locator.storage(BYTES)
        spaces = [INTO, f"{INTO}/d", f"{INTO}/leaf", f"{INTO}/closed"]
        keys = [key for space in spaces for key in storage.list(space)]
    return contents(target, keys)


def differing(spark: SparkSession, source: StoreEndpoint, target: Path, out: Path) -> list[str]:
    options = diff.DiffOptions(
        left=source, right=parse_endpoint(f"{target}#{INTO}"), into=INTO, out=out
    )
    return [one["key"] for one in diff.run(spark, options).findings]


@pytest.mark.medium
def test_a_tree_is_followed_until_the_cut_over(
    spark: SparkSession, stores: Stores, zookeeper: tuple[Any, str], target: Path, tmp_path: Path
) -> None:
    client, top = zookeeper
    source, run = raw(stores, "zookeeper", top), tmp_path / "followed"
    moved = restore_and_migrate.RestoreOptions(
        source=source,
        target=written_to(target),
        into=INTO,
        out=tmp_path / "moved",
    )
    assert restore_and_migrate.run(spark, moved).ending is JobEnding.DONE
    with pytest.raises(UsageError, match="Its --into is 'old', and not 'elsewhere'"):
        feed.run(
            spark,
            feed.FeedOptions(
                source=source, into="elsewhere", target=moved.target, out=run, after=moved.out
            ),
        )
    assert not run.exists()
    first = followed(spark, source, target, run, after=moved.out)
    assert (first.ending, first.counts["changes"]) == (JobEnding.DONE, 0)
    client.set(f"{top}/d/c0", b"changed")
    client.delete(f"{top}/d/c1")
    client.create(f"{top}/leaf/child", b"new")  # which makes a directory of the leaf
    client.create(f"{top}/mark", None)
    client.create(f"{top}/held-too", b"", ephemeral=True)
    report = followed(spark, source, target, run)
    assert report.ending is JobEnding.DONE, report
    assert keys_of(target) == {
        "old/closed/k": b"/closed/k",
        "old/d/c0": b"changed",
        "old/leaf/child": b"new",
        "old/mark": b"",
    }
    client.delete(f"{top}/leaf/child")
    assert followed(spark, source, target, run).ending is JobEnding.DONE
    assert keys_of(target)["old/leaf"] == b""
    assert differing(spark, source, target, tmp_path / "compared") == []


@pytest.mark.medium
def test_keys_of_nodes_that_an_acl_hides_stay_at_the_target(
    spark: SparkSession, stores: Stores, zookeeper: tuple[Any, str], target: Path, tmp_path: Path
) -> None:
    client, top = zookeeper
    source, run = raw(stores, "zookeeper", top), tmp_path / "followed"
    assert followed(spark, source, target, run).ending is JobEnding.DONE
    before = keys_of(target)
    client.set_acls(f"{top}/closed", [make_digest_acl(*_OWNER, all=True)])
    client.set_acls(f"{top}/d/c0", [make_digest_acl(*_OWNER, all=True)])
    report = followed(spark, source, target, run)
    assert report.ending is JobEnding.FINDINGS
    assert {one["key"] for one in report.findings} == {f"{top}/closed", f"{top}/d/c0"}
    assert keys_of(target) == before


@pytest.mark.medium
def test_a_key_that_a_program_wrote_at_the_target_stays(
    spark: SparkSession, stores: Stores, zookeeper: tuple[Any, str], target: Path, tmp_path: Path
) -> None:
    client, top = zookeeper
    source, run = raw(stores, "zookeeper", top), tmp_path / "followed"
    followed(spark, source, target, run)
    with PluginLocator().startup(target) as locator:
        locator.storage(BYTES).set("old/d/c0", b"a program's")
    client.set(f"{top}/d/c0", b"of a straggler")
    report = followed(spark, source, target, run)
    assert report.counts["conflict"] == 1
    assert keys_of(target)["old/d/c0"] == b"a program's"


@pytest.mark.medium
def test_keys_that_differ_from_a_tree_are_repaired(
    spark: SparkSession, stores: Stores, zookeeper: tuple[Any, str], target: Path, tmp_path: Path
) -> None:
    _, top = zookeeper
    source = raw(stores, "zookeeper", top)
    followed(spark, source, target, tmp_path / "followed")
    right = keys_of(target)
    with PluginLocator().startup(target) as locator:
        storage = locator.storage(BYTES)
        storage.set("old/d/c0", b"a program's")
        storage.delete("old/d/c1")
        storage.set("old/extra", b"a program's")
    compared = tmp_path / "compared"
    assert sorted(differing(spark, source, target, compared)) == [
        *("old/d/c0", "old/d/c1", "old/extra")
    ]
    options = repair.RepairOptions(diff=compared, out=tmp_path / "repaired", apply=True)
    report = repair.run(spark, options)
    assert (report.counts["written"], report.counts["extra"]) == (2, 1)
    assert keys_of(target) == right | {"old/extra": b"a program's"}


def repaired(spark: SparkSession, compared: Path, folder: Path) -> Report:
    """Return the report of a repair that also deletes what its plan says."""
    planned = folder / "planned"
    repair.run(spark, repair.RepairOptions(diff=compared, out=planned))
    options = repair.RepairOptions(
        diff=compared, out=folder / "repaired", apply=True, plan=planned, delete_extra=True
    )
    return repair.run(spark, options)


@pytest.mark.medium
def test_a_change_at_the_source_since_its_scan_is_a_conflict(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """A feed brings changes to the target while both sides are compared."""
    top, target = f"/{tmp_path.name}/", stores.config("zookeeper", tmp_path.name)
    admin = Admin(stores.settings("etcd")["plugin.etcd.endpoints"])
    for name in ("fix", "gone", "k"):
        admin.put(f"{top}{name}", b"1")
    source, run, compared = raw(stores, "etcd", top), tmp_path / "followed", tmp_path / "compared"
    followed(spark, source, target, run)
    with PluginLocator().startup(target) as locator:
        locator.storage(BYTES).set("old/fix", b"a program's")
        locator.storage(BYTES).put("old/extra", b"a program's")

    def follow() -> None:
        admin.put(f"{top}k", b"2")
        admin.put(f"{top}new", b"2")
        admin.delete(f"{top}gone")
        followed(spark, source, target, run)

    options = diff.DiffOptions(
        left=source, right=parse_endpoint(f"{target}#{INTO}"), into=INTO, out=compared
    )
    found = diff.run(spark, options, Hooks(planned=once(follow)))
    assert {one["key"]: one["outcome"] for one in found.findings} == {
        "old/extra": "only_right",
        "old/fix": "differs",
        "old/gone": "only_left",
        "old/k": "differs",
        "old/new": "only_right",
    }
    report = repaired(spark, compared, tmp_path)
    assert (report.counts["written"], report.counts["conflict"]) == (2, 3)
    assert {one["key"] for one in report.findings} == {"old/gone", "old/k", "old/new"}
    assert keys_of(target) == {"old/fix": b"1", "old/k": b"2", "old/new": b"2"}
    assert not (tmp_path / "repaired" / "left").exists()


@pytest.mark.medium
def test_a_key_that_is_hidden_since_the_diff_is_not_deleted(
    spark: SparkSession, stores: Stores, zookeeper: tuple[Any, str], target: Path, tmp_path: Path
) -> None:
    client, top = zookeeper
    source, compared = raw(stores, "zookeeper", top), tmp_path / "compared"
    followed(spark, source, target, tmp_path / "followed")
    before = keys_of(target)
    extra = {"old/closed/extra": b"a program's", "old/d/c1/extra": b"a program's"}
    with PluginLocator().startup(target) as locator:
        storage = locator.storage(BYTES)
        storage.put_many(extra | {"old/d/extra": b"a program's"})
        storage.delete("old/d/c0")
    differing(spark, source, target, compared)
    for name in ("closed", "d/c0", "d/c1"):
        client.set_acls(f"{top}/{name}", [make_digest_acl(*_OWNER, all=True)])
    report = repaired(spark, compared, tmp_path)
    assert {one["key"]: one["outcome"] for one in report.findings} == dict.fromkeys(
        (*extra, "old/d/c0"), "conflict"
    )
    assert report.counts["written"] == 1
    del before["old/d/c0"]
    assert keys_of(target) | contents(target, list(extra)) == before | extra


@pytest.mark.medium
def test_keys_that_differ_from_a_part_of_a_snapshot_are_repaired(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path
) -> None:
    """With the values of this part, not with those of another path that has the same end."""
    part, taken = tmp_path.name, tmp_path / "taken"
    admin = Admin(stores.settings("etcd")["plugin.etcd.endpoints"])
    for path in (f"{part}/x", f"{part}/low/y", "x"):
        admin.put(path, path.encode())
    whole = snapshot.SnapshotOptions(source=raw(stores, "etcd", ""), out=taken)
    snapshot.run(spark, whole)
    compared = tmp_path / "compared"
    left = parse_endpoint(f"{taken}#{part}/")
    with PluginLocator().startup(target) as locator:
        locator.storage(BYTES).put("old/x", b"a program's")
    right = parse_endpoint(f"{target}#{INTO}")
    diff.run(spark, diff.DiffOptions(left=left, right=right, into=INTO, out=compared))
    options = repair.RepairOptions(diff=compared, out=tmp_path / "repaired", apply=True)
    report = repair.run(spark, options)
    assert (report.ending, report.counts["written"]) == (JobEnding.DONE, 2), report
    expected = {"old/x": f"{part}/x".encode(), "old/low/y": f"{part}/low/y".encode()}
    assert contents(target, list(expected)) == expected


@pytest.mark.medium
def test_a_prefix_is_followed_by_its_log(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path
) -> None:
    top = f"/{tmp_path.name}/"
    admin = Admin(stores.settings("etcd")["plugin.etcd.endpoints"])
    for name in ("a", "b", "d/c"):
        admin.put(f"{top}{name}", name.encode())
    source, run = raw(stores, "etcd", top), tmp_path / "followed"
    assert followed(spark, source, target, run).ending is JobEnding.DONE
    admin.put(f"{top}a", b"changed")
    admin.delete(f"{top}b")
    admin.put(f"{top}new", b"new")
    admin.put(f"{top}d//no", b"no key")
    report = followed(spark, source, target, run)
    assert report.ending is JobEnding.FINDINGS
    assert [one["key"] for one in report.findings] == [f"{top}d//no"]
    assert keys_of(target) == {"old/a": b"changed", "old/d/c": b"d/c", "old/new": b"new"}


@pytest.mark.medium
def test_a_feed_after_a_migration_names_paths_that_are_no_keys(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path
) -> None:
    top = f"/{tmp_path.name}/"
    admin = Admin(stores.settings("etcd")["plugin.etcd.endpoints"])
    for name in ("a", "d//no"):
        admin.put(f"{top}{name}", name.encode())
    source = raw(stores, "etcd", top)
    moved = restore_and_migrate.RestoreOptions(
        source=source, target=written_to(target), into=INTO, out=tmp_path / "moved"
    )
    assert restore_and_migrate.run(spark, moved).ending is JobEnding.FINDINGS
    run = tmp_path / "followed"
    report = followed(spark, source, target, run, after=moved.out)
    assert (report.ending, report.counts["rejected_records"]) == (JobEnding.FINDINGS, 1)
    assert [one["key"] for one in report.findings] == [f"{top}d//no"]


def test_a_feed_with_a_wrong_mapping_or_target_is_refused(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path
) -> None:
    goal = target_endpoint(parse_endpoint(str(target)))
    same = stores.config("etcd", "kip30-of-feeds")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"source": raw(stores, "etcd", "/x/"), "target": goal}, "--into"),
        ({"source": goal, "into": INTO}, "--into maps what is raw"),
        (
            {
                "source": raw(stores, "etcd", ""),
                "into": INTO,
                "target": target_endpoint(parse_endpoint(str(same))),
            },
            "are the same store",
        ),
    ]
    for given, message in wrong:
        options: Any = {"out": tmp_path / "run", **given}
        with pytest.raises(UsageError, match=message):
            feed.run(spark, feed.FeedOptions(**options))
    assert not (tmp_path / "run").exists()
