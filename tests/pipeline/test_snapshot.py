"""Snapshots of an embedded store: the job, its files, and what it leaves behind."""

import _thread
import functools
import json
import operator
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kip30 import BYTES, PluginLocator, Storage, StoreError, UsageError
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import FORMAT, MANIFEST_NAME, Digest
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.stores.endpoints import SnapshotEndpoint
from kip30.pipeline.transfer import snapshot, view_reader
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles
from kip30_conformance.polling import eventually
from tests.gate.sizes import others_large

from .manifests import edit_manifest
from .snapshots import Hooks, embedded, rows_of, take, values_of
from .stores import fill

VALUES = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(300)} | {
    "top": b"",
    "same/a": b"of both",
    "same/b": b"of both",
    "n1/below/x": b"x" * 5_000,
    "ü/=é %/a": bytes(range(256)),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = embedded(tmp_path)
    fill(file, VALUES)
    return file


class _Crash(BaseException):
    """As if the driver ended here."""


def crash() -> None:
    raise _Crash


def digests(spark: SparkSession, out: Path) -> set[tuple[str, int]]:
    return {(row.key, row.digest) for row in rows_of(spark, out, ["key", "digest"])}


def test_every_record_is_there_once(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = take(spark, source, out, span_rows=50)
    assert values_of(spark, out) == VALUES
    assert report.ending is JobEnding.DONE
    assert report.counts == {
        "rows": len(VALUES),
        "moving": 0,
        "rejected": 0,
        "value_bytes": sum(map(len, VALUES.values())),
    }
    manifest = read_manifest(out)
    assert manifest.done
    assert manifest.planned == 7
    assert sorted(span for wave in manifest.waves for span in wave.spans) == list(range(7))
    assert len(manifest.waves) > 1
    facts = {"store": "embedded", "layout": "kip30", "under": "", "consistency": "point-in-time"}
    assert facts.items() <= manifest.source.items()
    json.dumps(report.record())


def test_digests_tell_values_and_keys_apart(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    take(spark, source, tmp_path / "out")
    rows = rows_of(spark, tmp_path / "out", ["digest", "value_bytes", "key"])
    assert len({row.digest for row in rows}) == len(VALUES)
    assert all(row.value_bytes == len(VALUES[row.key]) for row in rows)


XXHASH64 = 8401142224637180936
"""Of n/k7 and v7, as the first snapshots had it: later ones are compared with them."""


@pytest.mark.parametrize(("rows", "slots"), others_large([(7, 1), (1, 16), (50, 2), (100_000, 5)]))
def test_the_cut_into_spans_does_not_change_a_snapshot(
    spark: SparkSession,
    tmp_path: Path,
    rows: int,
    slots: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P03. The order of the spans is another one in every run."""
    file = embedded(tmp_path)
    values = {f"n/k{number}": b"v%d" % number for number in range(60)}
    fill(file, values)
    monkeypatch.setattr(view_reader, "slots", lambda _: slots)
    monkeypatch.setattr(snapshot, "slots", lambda _: slots)
    out = tmp_path / "out"
    take(spark, file, out, span_rows=rows)
    assert values_of(spark, out) == values
    found = {(row.key, row.digest) for row in rows_of(spark, out, ["key", "digest"])}
    xor = functools.reduce(operator.xor, (digest for _, digest in found))
    assert read_manifest(out).digest == Digest(60, sum(digest for _, digest in found), xor)
    assert ("n/k7", XXHASH64) in found


def test_a_store_that_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    file = embedded(tmp_path)
    fill(file, {})
    out = tmp_path / "out"
    report = take(spark, file, out)
    assert report.ending is JobEnding.DONE
    assert report.counts["rows"] == 0
    manifest = read_manifest(out)
    assert (manifest.planned, manifest.waves, manifest.done) == (0, [], True)
    assert SnapshotFiles(spark, SnapshotEndpoint("x", out, "")).rows().collect() == []


@pytest.mark.parametrize("under", ["n1", "n1/below", "ü", "none"])
def test_part_of_a_store(spark: SparkSession, source: Path, tmp_path: Path, under: str) -> None:
    out = tmp_path / "out"
    take(spark, f"{source}#{under}", out, span_rows=20)
    expected = {key: one for key, one in VALUES.items() if key.startswith(f"{under}/")}
    assert values_of(spark, out) == expected


def test_large_values(spark: SparkSession, tmp_path: Path) -> None:
    file = embedded(tmp_path)
    values = {f"n/k{number}": os.urandom(250_000) for number in range(40)}
    fill(file, values)
    report = take(spark, file, tmp_path / "out", span_rows=20)
    assert report.counts["value_bytes"] == 10_000_000
    assert values_of(spark, tmp_path / "out") == values


NAMES = ["a b", "ü—ß", "a[1]{2,3}*?", "50%20", "a#b", "a:b", "back\\slash", "=x", "$HOME", "^'\""]


@pytest.mark.parametrize("name", others_large(NAMES))
def test_folders_of_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    file = embedded(tmp_path)
    fill(file, {"n/a": b"1", "n/b": b"2"})
    out = tmp_path / name
    report = take(spark, file, out)
    assert report.ending is JobEnding.DONE
    files = SnapshotFiles(spark, SnapshotEndpoint(str(out), out, ""))
    files.verify()
    assert {row.key: bytes(row.value) for row in files.rows().collect()} == {
        "n/a": b"1",
        "n/b": b"2",
    }
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(
        {"db", "store.properties", name}
    )


def test_no_one_else_can_read_it(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    take(spark, source, out, show_claims=True)
    for path in (out, *out.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.large
def test_writers_do_not_disturb_it(spark: SparkSession, tmp_path: Path) -> None:
    """P05: with the last write of a thread, its earlier writes are there as well."""
    file = embedded(tmp_path)
    out = tmp_path / "out"
    with writing(file, threads=4):
        report = take(spark, file, out, span_rows=7)
    assert report.counts["moving"] == 0
    check_moment(values_of(spark, out), threads=4)


KEYS = 25


@contextmanager
def writing(config: Path, threads: int) -> Iterator[None]:
    """Let threads write their keys in turn, each time a greater number."""
    fill(config, {f"w{thread}/k{key:02}": b"0" for thread in range(threads) for key in range(KEYS)})
    rounds = [0] * threads
    ended = threading.Event()

    def write(storage: Storage[bytes], thread: int) -> None:
        while not ended.is_set():
            rounds[thread] += 1
            for key in range(KEYS):
                storage.update(f"w{thread}/k{key:02}", b"%d" % rounds[thread])

    with PluginLocator().startup(config) as client, ThreadPoolExecutor(threads) as pool:
        storage = client.storage(BYTES)
        writers = [pool.submit(write, storage, thread) for thread in range(threads)]
        try:
            eventually(lambda: min(rounds) > 1 or any(one.done() for one in writers), within=30)
            yield
        finally:
            ended.set()
            for writer in writers:
                writer.result()


def check_moment(values: dict[str, bytes], threads: int) -> None:
    """Require that *values* are those of one moment."""
    assert len(values) == threads * KEYS
    for thread in range(threads):
        seen = [int(values[f"w{thread}/k{key:02}"]) for key in range(KEYS)]
        assert seen == sorted(seen, reverse=True)
        assert seen[0] - seen[-1] <= 1


@pytest.mark.parametrize("point", others_large(["files", "plan", "claims", "manifest", "done"]))
def test_a_resume_after_a_crash(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """P04: as if nothing had happened."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    take(spark, source, whole, span_rows=40)
    with monkeypatch.context() as patch:
        crash_at(patch, point)
        with pytest.raises(_Crash):
            take(spark, source, out, span_rows=40)
    fill(source, {"later": b""})
    before = read_manifest(out)
    assert not before.done
    report = take(spark, source, out, span_rows=40, resume=True)
    after = read_manifest(out)
    assert after.waves[: len(before.waves)] == before.waves
    assert (after.run, after.done, report.ending) == (before.run, True, JobEnding.DONE)
    later = point == "plan"  # before there is a position
    expected = VALUES | ({"later": b""} if later else {})
    assert values_of(spark, out) == expected
    assert later or digests(spark, out) == digests(spark, whole)
    assert later or after.digest == read_manifest(whole).digest
    assert not (out / "scratch").exists()


def crash_at(patch: pytest.MonkeyPatch, point: str) -> None:
    """Let the driver crash at *point*."""
    save = RunDirectory.save

    def saving(run: RunDirectory) -> None:
        if (point == "done" and run.manifest.done) or (
            point == "manifest" and len(run.manifest.waves) == 2
        ):
            raise _Crash
        save(run)

    patch.setattr(RunDirectory, "save", saving)
    if point == "plan":
        patch.setattr(RunDirectory, "save_plan", lambda *_: crash())
    if point == "claims":
        patch.setattr(view_reader.ViewReader, "note_claims", lambda *_, **__: crash())
    if point == "files":
        patch.setattr(snapshot, "write_scanned", lambda *_: crash())


def test_a_resume_with_another_namespace(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(_Crash):
        take(spark, source, out, Hooks(crash), span_rows=40)
    embedded(tmp_path, **{"plugin.namespace": "other"})
    with pytest.raises(UsageError, match="begun with the namespace 'kip30', and now it is 'other'"):
        take(spark, source, out, span_rows=40, resume=True)
    embedded(tmp_path)
    take(spark, source, out, span_rows=40, resume=True)
    assert values_of(spark, out) == VALUES


@pytest.mark.large
def test_another_store_at_the_same_place(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """P06."""

    def replace_it() -> None:
        (tmp_path / "db").rename(tmp_path / "before")  # removed, its number might be used again
        fill(embedded(tmp_path), {"n1/k001": b"other"})

    out = tmp_path / "out"
    report = take(spark, source, out, Hooks(waved=replace_it), span_rows=10)
    assert report.ending is JobEnding.INCOMPLETE
    assert "another database" in report.reason
    assert b"other" not in values_of(spark, out).values()
    again = take(spark, source, out, span_rows=10, resume=True)
    assert again.ending is JobEnding.INCOMPLETE
    assert "another database" in again.reason


def test_manifests_of_another_time(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """P38."""
    out = tmp_path / "out"
    take(spark, source, out)
    file = out / MANIFEST_NAME
    text = file.read_text()
    newer = json.dumps(json.loads(text) | {"format": FORMAT + 1})
    edit_manifest(out, lambda fields: fields.update(later=1))
    later = file.read_text()
    file.write_text(text)
    edit_manifest(out, lambda fields: fields.update(done=False))
    for change in (newer, later, file.read_text()):
        file.write_text(change)
        with pytest.raises(StoreError):
            SnapshotFiles(spark, SnapshotEndpoint("x", out, ""))
        with pytest.raises((StoreError, UsageError)):
            take(spark, source, out)
    file.write_text(text)
    SnapshotFiles(spark, SnapshotEndpoint("x", out, "")).verify()


def test_a_notebook_reads_a_store(spark: SparkSession, source: Path) -> None:
    """P39: rows that a query filters out are not missing in the next one."""
    frame = spark.read.format("kip30").option("config", str(source)).load()
    assert frame.where("key = 'top'").count() == 1
    assert frame.count() == len(VALUES)
    assert frame.where(f.col("key").startswith("n1/")).count() == 101
    assert {row.key: bytes(row.value) for row in frame.collect()} == VALUES
    assert frame.rdd.getNumPartitions() == 1  # there is no copy that several tasks could read
    part = spark.read.format("kip30").option("config", str(source)).option("under", "n2").load()
    assert part.limit(1).count() == 1
    assert part.count() == 100


def test_a_notebook_reads_an_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    file = embedded(tmp_path)
    fill(file, {})
    assert spark.read.format("kip30").option("config", str(file)).load().collect() == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({}, "takes the option 'config'"),
        ({"config": "{file}", "rows": "x"}, "an option of the source kip30 is wrong"),
        ({"config": "{file}", "request.seconds": "0"}, "a request cannot take"),
        ({"store": "{{"}, "no configuration"),
    ],
)
def test_wrong_options(
    spark: SparkSession, source: Path, option: dict[str, str], message: str
) -> None:
    options = {name: text.format(file=source) for name, text in option.items()}
    with pytest.raises(Exception, match=message):
        spark.read.format("kip30").options(**options).load().count()


def test_claims_are_for_people(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """P14."""
    out = tmp_path / "out"
    with PluginLocator().startup(source) as client:
        client.group_membership("a g").join("m/1", "data")
        assert client.leader_election("s/é").nominate("c", "leads")
        report = take(spark, source, out, show_claims=True)
        frame = spark.read.format("kip30").options(config=str(source), layout="claims").load()
        claims = {row.key: row.value for row in frame.collect()}
    assert values_of(spark, out) == VALUES
    assert report.facts["epochs"] == read_manifest(out).source["epochs"] == {"s/é": 1}
    lines = [json.loads(line) for line in (out / "claims.jsonl").read_text().splitlines()]
    shown = {(line["kind"], *line["names"]): line for line in lines}
    assert shown.keys() == {
        ("member", "a g", "m/1"),
        ("epoch", "s/é"),
        ("leader", "s/é", "c"),
    }
    assert shown["member", "a g", "m/1"]["bytes"] == 4
    assert shown["leader", "s/é", "c"]["owner"]
    assert sum(value is None for value in claims.values()) == 1
    assert len(claims) == 3


def test_claims_are_not_shown_unasked(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    with PluginLocator().startup(source) as client:
        client.leader_election("s").nominate("c", "leads")
        take(spark, source, tmp_path / "out")
    assert not (tmp_path / "out" / "claims.jsonl").exists()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files of this process."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.large
def test_nothing_stays_behind(
    spark: SparkSession, source: Path, tmp_path: Path, temporary: Path
) -> None:
    def state() -> tuple[int, int, int]:
        workers = [one for one in psutil.Process().children(recursive=True) if one.is_running()]
        own = psutil.Process()
        return threading.active_count(), own.num_fds(), len(workers)

    take(spark, source, tmp_path / "first", span_rows=50)
    before = state()
    for number in range(3):
        take(spark, source, tmp_path / f"out{number}", span_rows=50)
    eventually(lambda: state() <= before, what=f"as before: {before}")
    assert list(temporary.iterdir()) == []
    kept = {"data", "lock", MANIFEST_NAME, "plan.jsonl", "report.json"}
    assert {one.name for one in (tmp_path / "out0").iterdir()} == kept


def test_a_folder_that_is_removed(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = take(spark, source, out, Hooks(waved=lambda: shutil.rmtree(out)), span_rows=50)
    assert report.ending is JobEnding.INCOMPLETE


def test_ctrl_c_cancels_the_job(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    """In a process whose session goes on; see the tests of the engine for one that ends."""
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        take(spark, source, out, Hooks(waved=_thread.interrupt_main), span_rows=10)
    tracker = spark.sparkContext.statusTracker()
    eventually(lambda: not tracker.getActiveJobsIds(), what="no job runs")
    report = take(spark, source, out, span_rows=10, resume=True)
    assert report.ending is JobEnding.DONE
    assert values_of(spark, out) == VALUES
