"""Comparing what servers hold: etcd with ZooKeeper, and records of other programs with keys."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession
from typing_extensions import override

from kip30.pipeline.compare import diff
from kip30.pipeline.compare.diff import DiffOptions
from kip30.pipeline.compare.difference_files import read_differences
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.manifest import Manifest
from kip30.pipeline.run.progress import NoProgress
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import parse_endpoint

from .stores import Stores, fill, stores_in

pytestmark = pytest.mark.large

SAME = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(60)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(scope="module")
def kazoo(stores: Stores) -> Iterator[Any]:
    client: Any = KazooClient(hosts=stores.settings("zookeeper")["zookeeper.connect"])
    client.start()
    yield client
    client.stop()
    client.close()


class AtBegin(NoProgress):
    """Does something once positions are taken, and before the first wave."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work: Callable[[], object] | None = work

    @override
    def begin(self, manifest: Manifest) -> None:
        if self._work is not None:
            self._work()
            self._work = None


def compared(  # noqa: PLR0913
    spark: SparkSession,
    left: str,
    right: str,
    out: Path,
    *,
    into: str | None = None,
    progress: NoProgress | None = None,
) -> tuple[Report, dict[str, str]]:
    """Return the report of a diff, and the kind of each key."""
    options = DiffOptions(
        left=parse_endpoint(left), right=parse_endpoint(right), out=out, into=into, span_rows=20
    )
    report = diff.run(spark, options, progress)
    files = [file for wave in read_manifest(out).waves for file in wave.files]
    has_paths = left.startswith("raw:") and right.startswith("raw:") and into is None
    rows = read_differences(spark, out, files, has_paths=has_paths).collect()
    return report, {row.key: row.kind for row in rows}


def test_etcd_with_zookeeper(
    spark: SparkSession, stores: Stores, kazoo: Any, tmp_path: Path
) -> None:
    """P17, P18 on servers; a record that one of them cannot read is neither equal nor missing."""
    left, right = stores.config("etcd", "pair"), stores.config("zookeeper", "pair")
    fill(left, SAME | {"changed": b"old!", "n1/left": b"", "foreign": b"x"})
    fill(right, SAME | {"changed": b"new!", "n2/right": b"", "foreign": b"x"})
    expected = {"changed": "differs", "n1/left": "only_left", "n2/right": "only_right"}
    report, found = compared(spark, str(left), str(right), tmp_path / "a")
    assert (report.ending, found) == (JobEnding.FINDINGS, expected)
    assert not report.counts["left_rejected"] + report.counts["right_rejected"]

    kazoo.set("/pair/kv/=/foreign", b"written by something else")
    report, found = compared(spark, str(right), str(left), tmp_path / "b")
    mirrored = expected | {"n1/left": "only_right", "n2/right": "only_left"}
    assert found == mirrored | {"foreign": "unsettled"}
    assert [report.counts[f"{side}_rejected"] for side in ("left", "right")] == [1, 0]
    assert "rejected" in {finding["outcome"] for finding in report.findings}


def test_a_tree_with_the_keys_it_became(
    spark: SparkSession, stores: Stores, kazoo: Any, tmp_path: Path
) -> None:
    """Of a raw view, what changes after the position is unsettled."""
    tree = {"topics/t1": b"1", "topics/t2": b"2", "topics/t3": b"3", "empty": b""}
    for path, data in tree.items():
        kazoo.create(f"/app/{path}", data, makepath=True)
    kazoo.create("/app/brokers/b", b"gone with its session", ephemeral=True, makepath=True)
    kazoo.set("/app/topics", b"a directory with data is a key")
    keys = {f"taken/{path}": data for path, data in tree.items()}
    keys |= {"taken/topics": b"a directory with data is a key"}
    imported = stores.config("etcd", "imported")
    fill(imported, keys | {"other/key": b"of no concern"})
    raw, target = f"raw:{stores.config('zookeeper', 'x')}#/app", f"{imported}#taken"
    report, found = compared(spark, raw, target, tmp_path / "a", into="taken")
    assert (report.ending, found) == (JobEnding.DONE, {})
    assert report.counts["left_skipped"] == 3  # two directories, one ephemeral node

    kazoo.set("/app/topics/t1", b"other")
    work = AtBegin(lambda: kazoo.set("/app/topics/t2", b"other"))
    report, found = compared(spark, target, raw, tmp_path / "b", into="taken", progress=work)
    assert found == {
        "taken/topics/t1": "differs",
        "taken/topics/t2": "unsettled",
    }


def test_two_trees_as_they_are(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    """Without a mapping the keys are paths, as bytes."""
    raw = f"raw:{stores.config('zookeeper', 'x')}#/app"
    assert compared(spark, raw, raw, tmp_path / "a")[0].ending is JobEnding.DONE
    _, found = compared(spark, f"{raw}/topics", raw, tmp_path / "b")
    assert set(found.values()) == {"only_right"}
    assert b"/app/empty" in {bytes(cast("bytes", key)) for key in found}
