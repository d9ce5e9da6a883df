"""P41: tables of Cassandra that another program made, as records of kip30's storage."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kip30.cli._exit_codes import Status
from kip30.cli.program import program
from kip30.pipeline.compare import diff
from kip30.pipeline.follow import feed
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.stores.endpoints import (
    StoreEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30_conformance.clients.default_signals import heeded
from tests.unit.cassandra.admin import Admin

from .stores import Stores, contents, stores_in

pytestmark = pytest.mark.large

_ROWS = {"top": "1", "a/b": "2", "a/b/c": "ü", "a/é k": "", "kv/k": "3", "seed/kv": "4"}
_BLOBS = {b"app/k": b"\xff\x00", b"app/empty": b"", b"app": b"top", b"apple/k": b"other"}
_ODD = {b"not utf-8 \xff": b"1", b"a//b": b"2"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(stores: Stores) -> Iterator[Admin]:
    with Admin(stores.ensemble("cassandra").nodes[0].address) as one:
        yield one


@pytest.fixture(scope="module")
def seed(stores: Stores, admin: Admin) -> Path:
    """Return the properties of a keyspace with tables that kip30 did not make."""
    admin.tell(
        "CREATE KEYSPACE seed WITH replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    admin.tell("CREATE TABLE seed.kv (key text PRIMARY KEY, value text)")
    _insert(admin, "kv", _ROWS | {"no value": None})
    for table, rows in (("blobs", _BLOBS), ("odd", _BLOBS | _ODD)):
        admin.tell(f"CREATE TABLE seed.{table} (key blob PRIMARY KEY, value blob)")
        _insert(admin, table, rows)
    admin.tell("CREATE TABLE seed.users (id int PRIMARY KEY, name text, mail text)")
    file = stores.config("cassandra", "of-seed")
    file.write_text(f"{file.read_text()}plugin.cassandra.keyspace=seed\n")
    return file


def _insert(admin: Admin, table: str, rows: Mapping[Any, object]) -> None:
    for pair in rows.items():
        admin.tell(f"INSERT INTO seed.{table} (key, value) VALUES (%s, %s)", *pair)  # noqa: S608


def _kip30(*words: object) -> Result:
    with heeded():
        return CliRunner().invoke(program, ["pipeline", *map(str, words)], prog_name="kip30")


def _endpoint(stores: Stores, store: str, namespace: str) -> StoreEndpoint:
    return target_endpoint(parse_endpoint(str(stores.config(store, namespace))))


_TEXTS = {key: value.encode() for key, value in _ROWS.items()} | {"no value": b""}
_TABLES = {
    "": _TEXTS,
    "#kv": _TEXTS,
    "#blobs": {key.decode(): value for key, value in _BLOBS.items()},
}


@pytest.mark.parametrize("table", _TABLES)
@pytest.mark.parametrize("target", ["embedded", "etcd", "cassandra"])
def test_a_table_is_taken_over(  # noqa: PLR0913, PLR0917  fixtures
    spark: SparkSession, stores: Stores, seed: Path, table: str, target: str, tmp_path: Path
) -> None:
    """P41: all of it is below the namespace, and then nothing differs."""
    values = {f"in/here/{key}": value for key, value in _TABLES[table].items()}
    source = store_endpoint(parse_endpoint(f"raw:{seed}{table}"))
    endpoint = _endpoint(stores, target, f"of{table.replace('#', '-')}")
    options = restore_and_migrate.RestoreOptions(
        source=source, target=endpoint, into="in/here", out=tmp_path / "run", span_rows=2
    )
    report = restore_and_migrate.run(spark, options)
    assert report.ending is JobEnding.DONE, report
    assert report.counts["written"] == report.counts["rows"] == len(values)
    config = stores.config(target, f"of{table.replace('#', '-')}")
    assert contents(config, [*values, "in/here"]) == values
    taken = parse_endpoint(str(tmp_path / "run" / "snapshot"))
    for number, left in enumerate((source, taken)):
        compared = diff.DiffOptions(
            left=left, right=endpoint, into="in/here", out=tmp_path / f"diff-{number}"
        )
        found = diff.run(spark, compared)
        assert found.ending is JobEnding.DONE, found
        assert found.counts["left_rows"] == found.counts["right_rows"] == len(values)


def test_keys_that_cannot_be_are_rejected(
    spark: SparkSession, stores: Stores, seed: Path, tmp_path: Path
) -> None:
    """P41: the others arrive."""
    endpoint = _endpoint(stores, "embedded", "odd")
    source = parse_endpoint(f"raw:{seed}#odd")
    options = restore_and_migrate.RestoreOptions(
        source=source, target=endpoint, into="n", out=tmp_path / "run"
    )
    report = restore_and_migrate.run(spark, options)
    assert (report.ending, report.counts["rejected"]) == (JobEnding.FINDINGS, len(_ODD)), report
    assert report.counts["written"] == len(_BLOBS)
    details = {one["key"]: one["detail"] for one in report.findings}
    assert "not UTF-8" in details["not utf-8 \\xff"]
    assert "empty part" in details["a//b"]


def test_part_of_a_snapshot_of_a_table(
    spark: SparkSession, stores: Stores, seed: Path, tmp_path: Path
) -> None:
    """P41: a table's name is no prefix of its keys; what follows a snapshot's '#' is one."""
    options = snapshot.SnapshotOptions(
        source=store_endpoint(parse_endpoint(f"raw:{seed}#blobs")), out=tmp_path / "taken"
    )
    assert snapshot.run(spark, options).ending is JobEnding.DONE
    part, endpoint = f"{tmp_path / 'taken'}#app/", _endpoint(stores, "embedded", "part")
    restored = restore_and_migrate.RestoreOptions(
        source=parse_endpoint(part), target=endpoint, into="n", out=tmp_path / "restore"
    )
    report = restore_and_migrate.run(spark, restored)
    assert report.ending is JobEnding.DONE, report
    values = {"n/k": b"\xff\x00", "n/empty": b""}
    assert report.counts["rows"] == len(values)
    assert contents(stores.config("embedded", "part"), list(values)) == values
    for rows in (None, 2):
        compared = diff.DiffOptions(
            left=parse_endpoint(part if rows else f"{tmp_path / 'taken'}#app"),
            right=parse_endpoint(part if rows else f"{tmp_path / 'taken'}#app"),
            out=tmp_path / f"diff-{rows}",
        )
        found = diff.run(spark, compared)
        assert (found.ending, found.counts["left_rows"]) == (JobEnding.DONE, rows or 4)


@pytest.mark.parametrize("job", ["snapshot", "migrate", "diff", "feed"])
def test_a_table_of_another_shape(stores: Stores, seed: Path, job: str, tmp_path: Path) -> None:
    """P41: its columns are named, and nothing is written."""
    target = stores.config("embedded", f"other-{job}")
    more = [target, "--into", "n"] if job in {"migrate", "diff"} else []
    result = _kip30(job, f"raw:{seed}#users", *more, "--out", tmp_path / "run")
    assert result.exit_code == Status.UNAVAILABLE, result.output
    for column in ("id int", "name text", "mail text", "seed.users"):
        assert column in result.stderr
    assert not list(tmp_path.rglob("wave=*"))
    assert contents(target, ["n/1", "n/name", "n"]) == {}


def test_a_table_that_is_not_there(seed: Path, tmp_path: Path) -> None:
    result = _kip30("snapshot", f"raw:{seed}#absent", "--out", tmp_path / "run")
    assert result.exit_code == Status.UNAVAILABLE, result.output
    assert "there is no table seed.absent" in result.stderr


def test_without_raw_the_tables_are_pointed_out(seed: Path, tmp_path: Path) -> None:
    result = _kip30("snapshot", seed, "--out", tmp_path / "run")
    assert result.exit_code == Status.REFUSED, result.output
    assert "raw:FILE reads" in result.output


def test_preflight_finds_what_is_wrong_with_a_table(stores: Stores, seed: Path) -> None:
    target = stores.config("embedded", "preflight")
    assert _kip30("preflight", f"raw:{seed}#blobs", target).exit_code == Status.OK
    result = _kip30("preflight", f"raw:{seed}#users", target)
    assert result.exit_code == Status.REFUSED
    assert "id int" in result.output


def test_a_feed_goes_on_from_a_snapshot_of_a_table(
    spark: SparkSession, admin: Admin, seed: Path, tmp_path: Path
) -> None:
    """P41: of rows that were changed since, and no others."""
    admin.tell("CREATE TABLE seed.moving (key text PRIMARY KEY, value text)")
    _insert(admin, "moving", dict.fromkeys(("kept", "changed", "deleted"), "1"))
    source = store_endpoint(parse_endpoint(f"raw:{seed}#moving"))
    taken = tmp_path / "taken"
    assert snapshot.run(spark, snapshot.SnapshotOptions(source=source, out=taken)).counts["rows"]
    _insert(admin, "moving", {"changed": "2"})
    admin.tell("DELETE FROM seed.moving WHERE key = 'deleted'")
    options = feed.FeedOptions(source=source, out=tmp_path / "feed", after=taken, once=True)
    assert feed.run(spark, options).ending is JobEnding.DONE
    rows = ds.dataset(tmp_path / "feed" / "out", format="parquet").to_table().to_pylist()
    changes = {row["key"]: row["value"] for row in rows}
    assert changes == {b"changed": b"2", b"deleted": None}
