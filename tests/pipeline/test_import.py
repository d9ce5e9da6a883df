"""A tree of another program, read in many waves, becomes keys: as if it had been read in one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from pyspark.sql import SparkSession

from kip30.pipeline.run import waves
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, parse_endpoint, target_endpoint
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.pipeline.transfer.restore_and_migrate import RestoreOptions

from .snapshots import take
from .stores import Stores, contents, stores_in

_OWNER = "alice", "geheim-1"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def small_waves() -> Iterator[None]:
    """Let each span be a wave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waves, "WAVE_SECONDS", 0.0)
        for job in (snapshot, restore_and_migrate):
            patch.setattr(job, "slots", lambda _: 1)
        yield


@pytest.fixture(scope="module")
def tree(stores: Stores) -> Iterator[str]:
    """Make a tree below /app, and return its endpoint."""
    address = stores.settings("zookeeper")["zookeeper.connect"]
    client: Any = KazooClient(hosts=address, auth_data=[("digest", ":".join(_OWNER))])
    client.start()
    for path in ("", "/closed", "/d", "/leaf"):
        client.create(f"/app{path}", None)
    for path in ("/d/c0", "/d/c1", "/d-after"):
        client.create(f"/app{path}", path.encode())
    client.create("/app/held", b"", ephemeral=True)
    client.create("/app/closed/secret", b"", acl=[make_digest_acl(*_OWNER, all=True)])
    yield f"raw:{stores.config('zookeeper', 'x')}#/app"
    client.stop()
    client.close()


@pytest.fixture(scope="module")
def taken(spark: SparkSession, tree: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a snapshot of the tree, with two nodes in each wave."""
    out = tmp_path_factory.mktemp("snapshots") / "taken"
    report = take(spark, tree, out, span_rows=2)
    assert (len(report.waves), report.counts["rejected"]) == (5, 1)
    return out


@pytest.fixture
def imported(
    spark: SparkSession, stores: Stores, taken: Path, tmp_path: Path
) -> Callable[[str, str], tuple[Report, Path]]:
    def run(under: str, into: str) -> tuple[Report, Path]:
        config = stores.config("embedded", into)
        options = RestoreOptions(
            source=SnapshotEndpoint(f"taken#{under}", taken, under),
            target=target_endpoint(parse_endpoint(str(config))),
            into=into,
            out=tmp_path / "run",
        )
        return restore_and_migrate.run(spark, options), config

    return run


@pytest.mark.large
def test_a_tree_is_taken_over_wave_by_wave(
    imported: Callable[[str, str], tuple[Report, Path]],
) -> None:
    """P41, P42, P43: the children of a node, one of them unreadable, are in other waves."""
    report, config = imported("", "k")
    expected = {f"k{path}": path.encode() for path in ("/d/c0", "/d/c1", "/d-after")}
    expected["k/leaf"] = b""
    assert len(report.waves) == 5
    counts = [report.counts[one] for one in ("written", "directory", "ephemeral", "rejected")]
    assert counts == [len(expected), 3, 1, 1]
    others = ["k/d", "k/closed", "k/closed/secret", "k/held"]
    assert contents(config, [*expected, *others]) == expected
    assert report.ending is JobEnding.FINDINGS
    (finding,) = report.findings
    assert (finding["key"], finding["outcome"]) == ("/app/closed/secret", "rejected")


def test_a_part_of_a_tree_begins_where_it_is_cut(
    imported: Callable[[str, str], tuple[Report, Path]],
) -> None:
    """Without the sibling whose name begins like that of the part."""
    report, config = imported("/app/d", "part")
    assert (report.ending, report.counts["written"]) == (JobEnding.DONE, 2)
    expected = {"part/c0": b"/d/c0", "part/c1": b"/d/c1"}
    assert contents(config, [*expected, "part/d/c0", "part/-after"]) == expected
