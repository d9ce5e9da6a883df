"""P45: keys of other programs in etcd and Consul, some of which can be no keys of kip30's.

That scanners read such keys as they are is tested with each store.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30.errors import UsageError
from kip30.pipeline import dataframes
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.stores.endpoints import (
    SnapshotEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.stores.path_mapping import Mapping, Skipped
from kip30.pipeline.transfer import restore_and_migrate, snapshot
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles
from kip30_conformance.servers import Ensemble, start
from tests.gate.sizes import others_large
from tests.unit.consul.admin import Admin as ConsulAdmin
from tests.unit.etcd.admin import Admin as EtcdAdmin
from tests.unit.etcd.admin import encoded

from .store import embedded, write_properties
from .trees import Mapped, mapped, scanned

_TOP = "old/app"
_GOOD = ["a", "a b", "a%2Fb", "..", "a/../b", "a\0b", "é", "a/b", "a/b?c#d", "=2F", "n" * 255]
_EMPTY_PARTS = ["", "/x", "x/", "x//y"]
_LONG = ["n" * 256, "é" * 43, f"{'n' * 250}/k"]
_NOT_UTF_8 = b"x\xff"


def _check(found: Mapped, not_utf_8: bytes) -> None:
    """Check the outcome of the keys that both stores were given."""
    assert found.values == {f"new/{key}": key.encode() for key in _GOOD}
    assert found.skipped == {f"{_TOP}/held".encode(): Skipped.EPHEMERAL}
    reasons = {
        "empty part": [f"{_TOP}/{key}".encode() for key in _EMPTY_PARTS],
        "after escaping": [f"{_TOP}/{key}".encode() for key in _LONG],
        "not UTF-8": [not_utf_8],
        "not below": [_TOP.encode(), f"{_TOP}2/a".encode()],
    }
    assert {key: _reason(found.rejected[key], reasons) for key in found.rejected} == {
        key: reason for reason, keys in reasons.items() for key in keys
    }


def test_keys_of_etcd(etcd: Ensemble) -> None:
    admin = EtcdAdmin(etcd.nodes[0].address)
    lease = admin.tell("lease/grant", TTL="600")["ID"]
    for key in (*_GOOD, *_EMPTY_PARTS, *_LONG):
        admin.put(f"{_TOP}/{key}", key.encode())
    admin.put(_TOP, b"")
    admin.put(f"{_TOP}2/a", b"")
    admin.tell("kv/put", key=encoded(f"{_TOP}/held".encode()), lease=lease)
    strange = f"{_TOP}/".encode() + _NOT_UTF_8
    admin.tell("kv/put", key=encoded(strange))
    found = scanned(etcd.settings(), _TOP, rows=3)
    _check(mapped(Mapping("new", _TOP, is_tree=False), found), strange)


def test_keys_of_consul(consul: Ensemble) -> None:
    admin = ConsulAdmin(consul.nodes[0].port)
    for key in (*_GOOD, *_EMPTY_PARTS, *_LONG):
        admin.put_exactly(f"{_TOP}/{key}", key.encode())
    admin.put_exactly(_TOP, b"")
    admin.put_exactly(f"{_TOP}2/a", b"")
    session = admin.tell("PUT", "session/create", {"Behavior": "delete"})["ID"]
    assert admin.take(f"{_TOP}/held", session)
    admin.put(f"{_TOP}/x%FF", b"")
    found = scanned(consul.settings(), _TOP, rows=3)
    shown = f"{_TOP}/x\ufffd".encode()
    _check(mapped(Mapping("new", _TOP, is_tree=False), found), shown)


def test_part_of_a_snapshot_of_keys(spark: SparkSession, etcd: Ensemble, tmp_path: Path) -> None:
    """The prefix of a view of etcd may end in the middle of a name."""
    admin = EtcdAdmin(etcd.nodes[0].address)
    for key in ("part/app/k", "part/apple", "part/b"):
        admin.put(key, b"")
    file = write_properties(tmp_path / "etcd.properties", etcd.settings())
    source = store_endpoint(parse_endpoint(f"raw:{file}#part/ap"))
    run = tmp_path / "run"
    snapshot.run(spark, snapshot.SnapshotOptions(source=source, out=run))
    for part, keys in {"part/app": 2, "part/app/": 1, "part/apple": 1, "part/ap": 2}.items():
        assert SnapshotFiles(spark, SnapshotEndpoint("", run, part)).rows().count() == keys
    with pytest.raises(UsageError, match="has no 'part/b'"):
        SnapshotFiles(spark, SnapshotEndpoint("", run, "part/b"))


_ALIKE = ["{}/a/b", "{}//a/b", "{}/a//b", "{}/a/b/", "{}a/b", "{}/", "{}", "{}/a=2Fb", "{}/a%2Fb"]
_ACCEPTED = ["a/b", "a=2Fb", "a%2Fb"]


@pytest.mark.parametrize("under", others_large(["one", "two/"]))
def test_paths_alike_do_not_become_one_key(
    spark: SparkSession, etcd: Ensemble, tmp_path: Path, under: str
) -> None:
    """P46: of paths that could be taken for one key, one has it, and all others are rejected."""
    admin = EtcdAdmin(etcd.nodes[0].address)
    top = under.removesuffix("/")
    values = {path.format(top): f"value of {path}".encode() for path in _ALIKE}
    for path, value in values.items():
        admin.put(path, value)
    file = write_properties(tmp_path / "etcd.properties", etcd.settings())
    target = embedded(tmp_path, 0)
    options = restore_and_migrate.RestoreOptions(
        source=parse_endpoint(f"raw:{file}#{under}"),
        target=target_endpoint(parse_endpoint(str(target))),
        into="n",
        out=tmp_path / "run",
    )
    report = restore_and_migrate.run(spark, options)
    assert report.ending is JobEnding.FINDINGS, report
    inside = {path for path in values if path.startswith(under)}
    accepted = {f"{top}/{rest}" for rest in _ACCEPTED}
    assert {one["key"] for one in report.findings} == inside - accepted
    assert {one["outcome"] for one in report.findings} == {"rejected"}
    assert report.counts["written"] == len(accepted)
    found = dataframes.records(spark, str(target)).collect()
    expected = {f"n/{rest}": values[f"{top}/{rest}"] for rest in _ACCEPTED}
    assert {row.key: bytes(row.value) for row in found} == expected


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("etcd", folder=tmp_path_factory.mktemp("etcd")) as servers:
        yield servers


@pytest.fixture(scope="module")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("consul", folder=tmp_path_factory.mktemp("consul")) as servers:
        yield servers


def _reason(told: str, reasons: dict[str, list[bytes]]) -> str:
    """Return the one of *reasons* that is in *told*."""
    (reason,) = (one for one in reasons if one in told)
    return reason
