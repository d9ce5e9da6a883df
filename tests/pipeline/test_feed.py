"""The job feed: into files once, into stores in effect once, and what an operator sees of it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

from kip30 import StoreError, UsageError
from kip30.pipeline import dataframes
from kip30.pipeline.follow import feed
from kip30.pipeline.follow.feed_options import FeedOptions
from kip30.pipeline.follow.journal import Journal
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import Manifest
from kip30.pipeline.run.progress import FeedProgress, NoProgress
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.run.wakeup import Wakeup
from kip30.pipeline.stores.endpoints import StoreEndpoint, parse_endpoint, store_endpoint
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.pipeline.transfer.restore_options import RestoreOptions
from kip30_conformance.polling import eventually, time_scale
from tests.unit.etcd.admin import Admin

from .feeding import Rows, acknowledged, changes_of, gaps, repeated, states, storage_of, version_of
from .stores import STORES, Stores, contents, fill, stores_in

VALUES = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(60)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as found:
        yield found


@pytest.fixture
def source(stores: Stores) -> Path:
    return stores.config("embedded", f"s{os.urandom(4).hex()}")


@pytest.fixture
def etcd(stores: Stores) -> Path:
    return stores.config("etcd", f"s{os.urandom(4).hex()}")


@pytest.fixture
def target(stores: Stores) -> Path:
    return stores.config("embedded", f"t{os.urandom(4).hex()}")


def endpoint(config: Path) -> StoreEndpoint:
    return store_endpoint(parse_endpoint(str(config)))


def options(source: Path, out: Path, target: Path | None = None, **more: Any) -> FeedOptions:
    given: dict[str, Any] = {"interval": 1.0, "batch_seconds": 0.0, **more}
    goal = None if target is None else endpoint(target)
    return FeedOptions(source=endpoint(source), target=goal, out=out, **given)


def once(spark: SparkSession, source: Path, out: Path, **more: Any) -> Report:
    return feed.run(spark, options(source, out, once=True, resume=out.exists(), **more))


def out_rows(run: Path) -> Rows:
    """Return the rows of the files, by the number of their batch."""
    partitioning = ds.partitioning(flavor="hive")
    found = ds.dataset(run / "out", format="parquet", partitioning=partitioning)
    rows: Rows = found.to_table().to_pylist()
    numbers = sorted(row["number"] for row in rows)
    assert numbers == list(range(len(numbers)))
    ordered = sorted(rows, key=lambda row: int(row["number"]))
    batches = [row["batch"] for row in ordered]
    assert batches == sorted(batches)
    assert all(str(row["day"]) == str(row["time"].date()) for row in rows)
    return ordered


def all_of(config: Path) -> dict[str, bytes]:
    """Return everything that is in a store."""
    with storage_of(config) as storage:
        keys = [key for space in ("n", "n0", "n1", "n2") for key in storage.list(space)]
    return contents(config, keys)


class Watched(NoProgress):
    """Keeps the news of a feed."""

    def __init__(self) -> None:
        self.states: list[FeedProgress] = []
        self.warnings: list[str] = []

    @override
    def feed(self, state: FeedProgress) -> None:
        self.states.append(state)

    @override
    def warn(self, text: str) -> None:
        self.warnings.append(text)


@contextmanager
def following(
    spark: SparkSession, chosen: FeedOptions, progress: Watched | None = None
) -> Iterator[list[Report]]:
    """Run a feed until the block ends; then the report is in the list."""
    stop = Wakeup()
    reports: list[Report] = []
    thread = threading.Thread(
        target=lambda: reports.append(feed.run(spark, chosen, progress, stop)), daemon=True
    )
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        thread.join(60 * time_scale())
    assert len(reports) == 1


def test_files_by_day(spark: SparkSession, etcd: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fill(etcd, VALUES)
    report = once(spark, etcd, run)
    assert report.ending is JobEnding.DONE
    assert report.facts["completeness"] == "every-change"
    assert report.counts["changes"] == len(VALUES)
    assert report.counts["waiting"] == 0
    assert states(out_rows(run)) == VALUES
    with storage_of(etcd) as storage:
        for turn in range(3):  # P25b
            storage.set("n0/k000", b"turn %d" % turn)
        storage.delete("n0/k003")
    once(spark, etcd, run)
    rows = out_rows(run)
    assert changes_of(rows[len(VALUES) :]) == [
        *(("n0/k000", b"turn %d" % turn) for turn in range(3)),
        ("n0/k003", None),
    ]
    once(spark, etcd, run)
    assert out_rows(run) == rows


@pytest.mark.parametrize("store", STORES)
def test_p25_a_store_into_another(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path, store: str
) -> None:
    config = stores.config(store, f"s{os.urandom(4).hex()}")
    fill(config, VALUES)
    fill(target, {"n1/k001": b"other"})
    report = once(spark, config, tmp_path / "run", target=target, overwrite=True)
    assert report.ending is JobEnding.DONE
    assert report.counts["written"] == len(VALUES)
    assert all_of(target) == VALUES
    with storage_of(config) as storage:
        for turn in range(5):
            storage.set("n0/k000", b"turn %d" % turn)
        storage.delete("n1/k001")
        storage.delete("n2/k002")
        storage.set("n2/k002", b"again")
        storage.set("n/new", b"new")
    report = once(spark, config, tmp_path / "run", target=target)
    assert (report.counts["written"], report.counts["deleted"]) == (3, 1)
    assert report.totals["written"] == len(VALUES) + 3
    assert all_of(target) == all_of(config)


def test_the_files_of_a_feed_are_a_stream(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    fill(source, VALUES)
    once(spark, source, run)

    def streamed() -> list[Any]:
        writer = dataframes.changes(spark, run).writeStream.trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "seen"))
        query.start(str(tmp_path / "lake"), format="parquet").awaitTermination()
        return spark.read.parquet(str(tmp_path / "lake")).collect()

    assert {row.key: bytes(row.value) for row in streamed()} == VALUES
    with storage_of(source) as storage:
        storage.set("n0/k000", b"changed")
        storage.delete("n1/k001")
    once(spark, source, run)
    rows = sorted(streamed(), key=lambda row: int(row.number))[len(VALUES) :]
    found = {row.key: row.value for row in rows}
    assert found == {"n0/k000": b"changed", "n1/k001": None}
    with pytest.raises(UsageError, match="has no manifest"):
        dataframes.changes(spark, tmp_path)


def test_p59_what_programs_wrote_stays(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path
) -> None:
    """P59, P60: it is a conflict, which is named and counted by the call that finds it."""
    run = tmp_path / "run"
    fill(source, VALUES)
    assert once(spark, source, run, target=target).ending is JobEnding.DONE
    theirs = {"n0/k000": b"a program's", "n1/k001": b"too", "n/new": b"and this"}
    with storage_of(target) as storage:
        for key, value in theirs.items():
            storage.set(key, value)
    with storage_of(source) as storage:
        for key in ("n0/k000", "n/new", "n2/k002"):
            storage.set(key, b"changed")
        storage.delete("n1/k001")
    report = once(spark, source, run, target=target)
    assert report.ending is JobEnding.FINDINGS
    assert (report.counts["conflict"], report.counts["written"]) == (3, 1)
    assert {one["key"]: one["outcome"] for one in report.findings} == dict.fromkeys(
        theirs, "conflict"
    )
    assert all_of(target) == VALUES | theirs | {"n2/k002": b"changed"}
    again = once(spark, source, run, target=target)
    assert again.ending is JobEnding.DONE
    assert (again.counts["conflict"], again.totals["conflict"]) == (0, 3)
    with storage_of(source) as storage:
        storage.set("n0/k000", b"once more")
    report = once(spark, source, run, target=target, overwrite=True)
    assert report.counts["written"] == 1
    assert all_of(target)["n0/k000"] == b"once more"


def test_p56_no_other_store_is_made_equal(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path
) -> None:
    """A feed whose file names another source or target by now deletes and writes nothing."""
    config = stores.config("embedded", f"s{os.urandom(4).hex()}")
    fill(config, VALUES)
    once(spark, config, tmp_path / "run", target=target)
    written, before = config.read_text(), all_of(target)
    (tmp_path / "other").mkdir(mode=0o700)
    directory = stores.settings("embedded")["plugin.embedded.directory"]
    config.write_text(written.replace(directory, str(tmp_path / "other")))
    fill(config, {"n/k": b"of another store"})
    report = once(spark, config, tmp_path / "run", target=target)
    assert report.ending is JobEnding.INCOMPLETE
    assert "another store than before" in report.reason
    assert all_of(target) == before
    config.write_text(written)
    target.write_text(re.sub("namespace=.*", "namespace=elsewhere", target.read_text()))
    with pytest.raises(UsageError, match="not the store that this run wrote to") as refused:
        once(spark, config, tmp_path / "run", target=target)
    assert all_of(target) == {}
    now = re.findall("--accept-store '([^']*)'", str(refused.value))
    report = once(spark, config, tmp_path / "run", target=target, accept_stores=now)
    assert report.ending is JobEnding.DONE
    assert all_of(target) == VALUES, "all keys are copied to the target that is accepted"


def name_another_namespace(config: Path) -> None:
    """Let *config* name one that nothing else uses."""
    other = f"namespace=o{os.urandom(4).hex()}"
    config.write_text(re.sub("namespace=.*", other, config.read_text()))


def test_p56_no_other_namespace_is_made_equal(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path
) -> None:
    """A position names its store, and not the namespace."""
    fill(source, VALUES)
    once(spark, source, tmp_path / "run", target=target)
    name_another_namespace(source)
    fill(source, {"n0/k000": b"of another namespace"})
    with pytest.raises(UsageError, match="the run was begun with the namespace"):
        once(spark, source, tmp_path / "run", target=target)
    assert all_of(target) == VALUES


class Editing(NoProgress):
    """Lets a properties file name another namespace once the run has begun."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @override
    def begin(self, manifest: Manifest) -> None:
        name_another_namespace(self._file)


@pytest.mark.parametrize("end", ["source", "target"])
def test_p56_a_file_that_is_edited_before_the_first_change(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path, end: str
) -> None:
    """The feed has compared the stores by then, and opens them only now."""
    edited = {"source": source, "target": target}[end]
    before = edited.read_text()
    fill(source, VALUES)
    chosen = options(source, tmp_path / "run", target, once=True)
    reason = "source: the run was begun with" if end == "source" else "target is not the store that"
    try:
        report = feed.run(spark, chosen, Editing(edited))
    except UsageError as error:  # nothing was read yet
        found = str(error)
    else:
        found = report.reason
    assert reason in found
    assert all_of(target) == {}
    edited.write_text(before)
    assert once(spark, source, tmp_path / "run", target=target).ending is JobEnding.DONE
    assert all_of(target) == VALUES


@pytest.mark.parametrize("store", ["embedded", "etcd", "zookeeper"])
def test_after_a_snapshot(spark: SparkSession, stores: Stores, tmp_path: Path, store: str) -> None:
    config = stores.config(store, f"s{os.urandom(4).hex()}")
    fill(config, VALUES)
    taken = snapshot.SnapshotOptions(source=endpoint(config), out=tmp_path / "taken")
    snapshot.run(spark, taken)
    with storage_of(config) as storage:
        storage.set("n0/k000", b"changed")
        storage.delete("n1/k001")
        storage.put("n/new", b"new")
    once(spark, config, tmp_path / "run", after=tmp_path / "taken")
    rows = out_rows(tmp_path / "run")
    assert dict(changes_of(rows)) == {"n0/k000": b"changed", "n1/k001": None, "n/new": b"new"}
    assert len(rows) == 3
    assert gaps(rows) == 0


@pytest.mark.medium
def test_after_a_snapshot_with_damaged_records(
    spark: SparkSession, stores: Stores, etcd: Path, tmp_path: Path
) -> None:
    """Each is named, and counted once, until it is gone or can be read again."""
    fill(etcd, VALUES)
    namespace = etcd.stem.partition("-")[2]
    admin = Admin(stores.settings("etcd")["plugin.etcd.endpoints"])
    places = [f"/{namespace}/kv/n0/k000", f"/{namespace}/kv/n1/k001"]
    for place in places:
        admin.put(place, b"damaged")
    taken = snapshot.SnapshotOptions(source=endpoint(etcd), out=tmp_path / "taken")
    snapshot.run(spark, taken)
    run = tmp_path / "run"
    report = once(spark, etcd, run, after=tmp_path / "taken")
    assert (report.ending, report.counts["rejected_records"]) == (JobEnding.FINDINGS, 2)
    assert [one["key"] for one in report.findings] == places
    admin.put(places[0], b"damaged in another way")
    assert once(spark, etcd, run).counts["rejected_records"] == 2
    for place in places:
        admin.delete(place)
    report = once(spark, etcd, run)
    assert (report.ending, report.counts["rejected_records"]) == (JobEnding.DONE, 0)


def test_after_a_migration(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """A migration has its snapshot inside."""
    fill(source, VALUES)
    moved = tmp_path / "moved"
    chosen = options(source, tmp_path / "run", once=True, after=moved)
    with RunDirectory(moved, "migrate", {}) as directory:
        snapshot.run(
            spark, snapshot.SnapshotOptions(source=endpoint(source), out=moved / "snapshot")
        )
        with pytest.raises(StoreError, match="not done"):
            feed.run(spark, chosen)
        assert not (tmp_path / "run").exists()
        directory.manifest.done = True
        directory.save()
    fill(source, {"n/new": b"new"})
    feed.run(spark, chosen)
    fill(source, {"n/newer": b"newer"})
    feed.run(spark, replace(chosen, resume=True, after=None))
    changes = changes_of(out_rows(tmp_path / "run"))
    assert changes == [("n/new", b"new"), ("n/newer", b"newer")]


def test_after_a_migration_to_other_keys_or_another_store(
    spark: SparkSession, stores: Stores, source: Path, target: Path, tmp_path: Path
) -> None:
    """A feed writes only later changes, so the rest must be there, and under the same keys."""
    other = stores.config("embedded", f"t{os.urandom(4).hex()}")
    fill(source, VALUES)
    moved, renamed, run = (tmp_path / name for name in ("moved", "renamed", "run"))
    migrating = RestoreOptions(source=endpoint(source), target=endpoint(target), out=moved)
    restore_and_migrate.run(spark, migrating)
    moves = (("n0", "n9"),)
    restore_and_migrate.run(
        spark, replace(migrating, target=endpoint(other), out=renamed, moves=moves)
    )
    fill(source, {"n/new": b"new"})
    for after, into, reason in (
        (moved, other, "It wrote to embedded:"),
        (renamed, other, "It moved keys to other namespaces"),
    ):
        with pytest.raises(UsageError, match=reason):
            once(spark, source, run, target=into, after=after)
        assert not run.exists()
    assert "n/new" not in all_of(other)
    report = once(spark, source, run, target=target, after=moved)
    assert (report.ending, report.counts["written"]) == (JobEnding.DONE, 1)
    assert all_of(target) == VALUES | {"n/new": b"new"}


def test_a_raw_view(spark: SparkSession, stores: Stores, tmp_path: Path) -> None:
    config = stores.config("zookeeper", f"s{os.urandom(4).hex()}")
    fill(config, {"n/k": b"1"})
    raw = store_endpoint(parse_endpoint(f"raw:{config}"))
    chosen = FeedOptions(source=raw, out=tmp_path / "run", once=True)
    feed.run(spark, chosen)
    before = len(out_rows(tmp_path / "run"))
    with storage_of(config) as storage:
        storage.set("n/k", b"2")
        storage.put("n/l", b"1")
        feed.run(spark, replace(chosen, resume=True))
    rows = [row for row in out_rows(tmp_path / "run")[before:] if b"/n/" in row["key"]]
    assert [row["key"].rpartition(b"/n/")[2] for row in rows] == [b"k", b"l"]
    assert rows[0]["value"].endswith(b"2")


def test_p24_a_gap_after_a_snapshot_is_repaired(
    spark: SparkSession, stores: Stores, etcd: Path, tmp_path: Path
) -> None:
    fill(etcd, VALUES)
    taken = snapshot.SnapshotOptions(source=endpoint(etcd), out=tmp_path / "taken")
    snapshot.run(spark, taken)
    with storage_of(etcd) as storage:
        storage.set("n0/k000", b"changed")
        storage.delete("n1/k001")
    stores.ensemble("etcd").compact()
    report = once(spark, etcd, tmp_path / "run", after=tmp_path / "taken")
    assert report.ending is JobEnding.FINDINGS
    assert report.counts["gaps"] == 1
    rows = out_rows(tmp_path / "run")
    assert rows[0]["kind"] == "gap"
    assert dict(changes_of(rows)) == {"n0/k000": b"changed", "n1/k001": None}
    again = once(spark, etcd, tmp_path / "run")
    assert again.ending is JobEnding.DONE
    assert (again.counts["gaps"], again.totals["gaps"]) == (0, 1)


CHILD = """
import os, signal, sys
from pathlib import Path
from kip30.pipeline.follow import feed, journal_consumer
from kip30.pipeline.spark.session import open_session
from tests.pipeline import test_feed
source, target, out, point = sys.argv[1:]
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
owner, name = journal_consumer.JournalConsumer, {"written": "_write"}.get(point, "_commit")
original = getattr(owner, name)
def deadly(self, segments, rows, *more):
    result = original(self, segments, rows, *more)
    if rows and point != "none":
        kill()
    return result
setattr(owner, name, deadly)
spark = open_session("local[1]", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
print("ready", flush=True)
chosen = test_feed.options(
    Path(source), Path(out), Path(target) if target else None,
    once=point != "none", resume=Path(out, "manifest.json").exists(),
)
feed.run(spark, chosen)
"""


@contextmanager
def child(source: Path, target: Path | None, out: Path, point: str) -> Iterator[Any]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))
    words = [sys.executable, "-c", CHILD, str(source), str(target or ""), str(out), point]
    process = subprocess.Popen(
        words,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("point", "into"),
    [
        ("written", "files"),
        pytest.param("written", "store", marks=pytest.mark.large),
        pytest.param("committed", "files", marks=pytest.mark.large),
        pytest.param("committed", "store", marks=pytest.mark.large),
    ],
)
def test_p21_killed_after_a_batch(  # noqa: PLR0913, PLR0917  fixtures
    spark: SparkSession, source: Path, target: Path, tmp_path: Path, into: str, point: str
) -> None:
    """P21: the sink has the batch, and the manifest has it or not; then more changes come."""
    goal = target if into == "store" else None
    run = tmp_path / "run"
    fill(source, VALUES)
    with child(source, goal, run, point) as process:
        assert process.wait(90 * time_scale()) == -signal.SIGKILL
    written = read_manifest(run).counts.get("written", 0)
    with storage_of(source) as storage:
        storage.set("n0/k000", b"changed")
    report = once(spark, source, run, target=goal)
    assert report.counts["changes"] == len(VALUES) + 1
    if goal is None:
        rows = out_rows(run)
        assert states(rows) == all_of(source)
        assert repeated(rows) == []
        assert len(rows) == len(VALUES) + 1
    else:
        assert written == (len(VALUES) if point == "committed" else 0)
        assert report.counts["written"] == len(VALUES) + 1
        assert all_of(target) == all_of(source)


@pytest.mark.large
def test_p22_a_batch_that_comes_again(
    spark: SparkSession, source: Path, target: Path, tmp_path: Path
) -> None:
    fill(source, VALUES)
    with child(source, target, tmp_path / "run", "written") as process:
        assert process.wait(90 * time_scale()) == -signal.SIGKILL
    with storage_of(target) as storage:
        before = {key: version_of(storage, key) for key in VALUES}
    once(spark, source, tmp_path / "run", target=target)
    with storage_of(target) as storage:
        assert {key: version_of(storage, key) for key in VALUES} == before
    assert read_manifest(tmp_path / "run").counts["written"] == len(VALUES)


def test_p23_once_ends_while_writers_go_on(spark: SparkSession, etcd: Path, tmp_path: Path) -> None:
    """P23: each pass ends at the position at which it began, and the next one goes on there."""
    fill(etcd, VALUES)
    over = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write_until, over, etcd, f"n/w{number}") for number in range(4)]
        try:
            reports = [once(spark, etcd, tmp_path / "run") for _ in range(4)]
        finally:
            over.set()
        written = [writer.result() for writer in writers]
    assert {report.ending for report in reports} == {JobEnding.DONE}
    assert min(written) > len(reports)
    once(spark, etcd, tmp_path / "run")
    rows = out_rows(tmp_path / "run")
    assert states(rows) == all_of(etcd)
    assert repeated(rows) == []


def write_until(over: threading.Event, config: Path, key: str) -> int:
    """Write *key* until *over* is set, and return how often."""
    written = 0
    with storage_of(config) as storage:
        while not over.is_set():
            acknowledged(lambda: storage.set(key, os.urandom(4)))
            written += 1
    return written


def test_a_feed_follows_and_reports_its_progress(
    spark: SparkSession, etcd: Path, target: Path, tmp_path: Path
) -> None:
    progress = Watched()
    fill(etcd, VALUES)
    with (
        following(spark, options(etcd, tmp_path / "run", target), progress) as reports,
        storage_of(etcd) as storage,
    ):
        eventually(lambda: all_of(target) == VALUES, within=30)
        storage.set("n/late", b"late")
        eventually(lambda: all_of(target).get("n/late") == b"late", within=30)
        eventually(
            lambda: progress.states[-1].waiting == 0 and progress.states[-1].seconds < 5,
            within=30,
        )
    assert reports[0].ending is JobEnding.INCOMPLETE
    assert reports[0].counts["waiting"] == 0
    with following(spark, options(etcd, tmp_path / "run", target, resume=True)):
        with storage_of(etcd) as storage:
            storage.delete("n/late")
        eventually(lambda: "n/late" not in all_of(target), within=30)


def test_an_outage_is_waited_for(
    spark: SparkSession, stores: Stores, target: Path, tmp_path: Path
) -> None:
    config = stores.config("zookeeper", f"s{os.urandom(4).hex()}")
    text = config.read_text()
    progress = Watched()
    fill(config, VALUES)
    ensemble = stores.ensemble("zookeeper")
    with ensemble.link() as link:
        config.write_text(
            text
            + "".join(f"{key}={value}\n" for key, value in link.settings().items())
            + "plugin.operation.timeout.ms=1000\nplugin.connect.timeout.ms=1000\n"
        )
        chosen = options(config, tmp_path / "run", target)
        config_direct = config.with_suffix(".direct")
        config_direct.write_text(text)
        with following(spark, chosen, progress):
            eventually(lambda: all_of(target) == VALUES, within=30)
            link.cut()
            eventually(lambda: len(progress.warnings) > 1, within=60)
            fill(config_direct, {"n/late": b"late"})
            link.heal()
            eventually(lambda: all_of(target).get("n/late") == b"late", within=60)


@pytest.mark.large
def test_an_outage_of_the_target_is_waited_for(
    spark: SparkSession, stores: Stores, source: Path, tmp_path: Path
) -> None:
    direct = stores.config("etcd", f"t{os.urandom(4).hex()}")
    progress = Watched()
    fill(source, VALUES)
    with stores.ensemble("etcd").link() as link:
        linked = tmp_path / "linked.properties"
        lines = {**link.settings(), "plugin.operation.timeout.ms": 1_000}
        lines |= {"plugin.connect.timeout.ms": 1_000}
        more = "".join(f"{key}={value}\n" for key, value in lines.items())
        linked.write_text(direct.read_text() + more)
        with following(spark, options(source, tmp_path / "run", linked), progress):
            eventually(lambda: all_of(direct) == VALUES, within=30)
            link.cut()
            fill(source, {"n/late": b"late"})
            eventually(lambda: len(progress.warnings) > 0, within=60)
            eventually(lambda: progress.states[-1].waiting == 1, within=60)
            link.heal()
            eventually(lambda: all_of(direct).get("n/late") == b"late", within=60)


def test_applied_journal_files_are_deleted(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for turn in range(6):
        fill(source, {f"n/k{turn}": b"%d" % turn})
        once(spark, source, run)
    assert len(list((run / "journal").glob("*.parquet"))) == 1
    assert [key for key, _ in changes_of(out_rows(run))] == [f"n/k{turn}" for turn in range(6)]


def test_a_crash_of_the_machine_takes_no_rows_that_the_journal_forgets(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, synced, lost = tmp_path / "run", set[Path](), set[Path]()
    fsync, remove_before = os.fsync, Journal.remove_before

    def noting(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def looking(journal: Journal, segment: int) -> None:
        if days := list((run / "out").glob("day=*")):
            written = {run / "out", *days, *(one for day in days for one in day.rglob("*"))}
            lost.update(written - synced)
        remove_before(journal, segment)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(Journal, "remove_before", looking)
    for turn in range(2):
        fill(source, {f"n/k{turn}": b"%d" % turn})
        once(spark, source, run)
    assert [key for key, _ in changes_of(out_rows(run))] == ["n/k0", "n/k1"]
    assert lost == set()


@pytest.mark.large
def test_batches_leave_nothing_behind(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """A feed runs for months, with a batch each second."""
    process = psutil.Process()
    held: list[tuple[int, int]] = []
    with storage_of(source) as storage, following(spark, options(source, tmp_path / "run")):
        for turn in range(12):
            storage.set("n/k", b"%d" % turn)
            eventually(partial(_has_batches, tmp_path / "run", turn + 1), within=30)
            held.append((process.num_threads(), process.num_fds()))
    for numbers in zip(*held, strict=True):
        assert max(numbers[6:]) <= max(numbers[:6]) + 1


def _has_batches(run: Path, number: int) -> bool:
    return len(list(run.glob("out/day=*/batch=*"))) >= number


@pytest.mark.large
def test_ctrl_c_ends_it_and_resume_goes_on(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    fill(source, VALUES)
    run = tmp_path / "run"
    with child(source, None, run, "none") as process:
        eventually(lambda: list(run.glob("out/day=*/batch=*")), within=60)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60 * time_scale()) == -signal.SIGINT
    counts = read_manifest(run).counts
    assert counts["changes"] == len(VALUES)
    fill(source, {"n/late": b"late"})
    once(spark, source, run)
    assert states(out_rows(run)) == VALUES | {"n/late": b"late"}


@pytest.fixture
def conflicting(spark: SparkSession, source: Path, target: Path, tmp_path: Path) -> Path:
    """Return the run of a feed that has applied all; a program's value is at the next change."""
    fill(source, VALUES)
    assert once(spark, source, tmp_path / "run", target=target).ending is JobEnding.DONE
    with storage_of(target) as storage:
        storage.set("n/new", b"a program's")
    fill(source, {"n/new": b"new"})
    return tmp_path / "run"


def expect_the_conflict(report: Report) -> None:
    assert report.ending is JobEnding.FINDINGS
    assert (report.counts["conflict"], report.totals["conflict"]) == (1, 1)
    assert [(one["key"], one["outcome"]) for one in report.findings] == [("n/new", "conflict")]


@contextmanager
def interrupted_at(condition: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C once *condition* is true."""

    def press() -> None:
        eventually(condition, within=60)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        pressed = pool.submit(press)
        yield
        pressed.result()


def test_a_conflict_that_ctrl_c_hides_is_reported_again(
    spark: SparkSession, source: Path, target: Path, conflicting: Path
) -> None:
    """The exit code of Ctrl-C tells nothing of conflicts: the report is written, and repeated."""

    def has_met_it() -> bool:
        return read_manifest(conflicting).counts.get("conflict", 0) == 1

    with interrupted_at(has_met_it), pytest.raises(KeyboardInterrupt):
        feed.run(spark, options(source, conflicting, target, resume=True))
    written = json.loads((conflicting / "report.json").read_text())
    assert written["ending"] == "incomplete"
    assert written["counts"]["conflict"] == 1
    assert [one["key"] for one in written["findings"]] == ["n/new"]
    expect_the_conflict(once(spark, source, conflicting, target=target))
    again = once(spark, source, conflicting, target=target)
    assert again.ending is JobEnding.DONE
    assert (again.counts["conflict"], list(again.findings)) == (0, [])


def test_a_conflict_of_an_incomplete_call_is_reported_again(
    spark: SparkSession, source: Path, target: Path, conflicting: Path
) -> None:
    with following(spark, options(source, conflicting, target, resume=True)) as reports:
        eventually(lambda: read_manifest(conflicting).counts.get("conflict") == 1, within=60)
    assert (reports[0].ending, reports[0].counts["conflict"]) == (JobEnding.INCOMPLETE, 1)
    expect_the_conflict(once(spark, source, conflicting, target=target))
    assert once(spark, source, conflicting, target=target).ending is JobEnding.DONE


@pytest.mark.large
def test_a_conflict_that_a_killed_feed_met_is_named_by_the_next(
    spark: SparkSession, source: Path, target: Path, conflicting: Path
) -> None:
    with child(source, target, conflicting, "committed") as process:
        assert process.wait(90 * time_scale()) == -signal.SIGKILL
    expect_the_conflict(once(spark, source, conflicting, target=target))


def test_a_report_that_cannot_be_written_is_not_given(
    spark: SparkSession, source: Path, target: Path, conflicting: Path
) -> None:
    obstacle = conflicting / "report.json"
    obstacle.unlink(missing_ok=True)
    obstacle.mkdir()
    with pytest.raises(OSError, match=r"report\.json"):
        once(spark, source, conflicting, target=target)
    obstacle.rmdir()
    expect_the_conflict(once(spark, source, conflicting, target=target))
    assert once(spark, source, conflicting, target=target).ending is JobEnding.DONE


def test_a_journal_that_is_older_than_its_run_is_refused(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    """As in a copy of the folder that was made while the feed ran."""
    run = tmp_path / "run"
    fill(source, {"n/k": b"1"})
    once(spark, source, run)
    shutil.copytree(run / "journal", tmp_path / "journal")
    shutil.copy(run / "known.db", tmp_path)
    fill(source, {"n/l": b"1"})
    once(spark, source, run)
    shutil.rmtree(run / "journal")
    shutil.copytree(tmp_path / "journal", run / "journal")
    shutil.copy(tmp_path / "known.db", run)
    with pytest.raises(StoreError, match=r"has applied segment \d, and its journal ends with"):
        once(spark, source, run)


def test_one_feed_at_a_time(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    fill(source, VALUES)
    chosen = options(source, tmp_path / "run")
    with following(spark, chosen):
        eventually((tmp_path / "run" / "journal").exists, within=30)
        with pytest.raises(UsageError, match="another process works"):
            once(spark, source, tmp_path / "run")


@pytest.mark.parametrize("interval", [0.5, 0, float("nan")])
def test_a_wrong_interval(
    spark: SparkSession, source: Path, tmp_path: Path, interval: float
) -> None:
    with pytest.raises(UsageError, match="interval"):
        feed.run(spark, options(source, tmp_path / "run", interval=interval))
    assert not (tmp_path / "run").exists()


def test_wrong_targets(spark: SparkSession, source: Path, etcd: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="same store"):
        feed.run(spark, options(source, tmp_path / "run", source))
    raw = store_endpoint(parse_endpoint(f"raw:{etcd}"))
    chosen = FeedOptions(source=raw, target=endpoint(source), out=tmp_path / "run")
    with pytest.raises(UsageError, match="raw"):
        feed.run(spark, chosen)


def test_a_snapshot_of_another_view(
    spark: SparkSession, source: Path, etcd: Path, tmp_path: Path
) -> None:
    taken = snapshot.SnapshotOptions(source=endpoint(etcd), out=tmp_path / "taken")
    snapshot.run(spark, taken)
    fill(source, VALUES)
    with pytest.raises(UsageError, match="store"):
        once(spark, source, tmp_path / "run", after=tmp_path / "taken")
