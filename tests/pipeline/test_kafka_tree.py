"""The tree of a real Kafka, and other nodes that kip30 did not make."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

import pytest
from kazoo.protocol.serialization import Create2
from kazoo.security import OPEN_ACL_UNSAFE

from kip30 import BYTES, PluginLocator
from kip30.driver.scanning import Row
from kip30.pipeline.stores.path_mapping import Lifetime, Mapping, Skipped, kind_of
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.zookeeper.alice import alice_on, hiding

from .kafka_broker import BROKER, Broker, broker_on, run_tool
from .trees import mapped, scanned

_CHROOT = "/kafka"
_LONG = "t" * 249  # as long as a topic may be
_TRANSACTIONS = "org.apache.zookeeper.server.persistence.TxnLogToolkit"
_OF_SESSIONS = re.compile(r"createSession \d+|closeSession v\{\}|multi check:[\0\1]*/[\0\1]*")
"""These change nothing of a tree. By the check a client proves that its session lives."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of ZooKeeper, and of its transactions."""
    return tmp_path_factory.mktemp("zookeeper")


@pytest.fixture(scope="module")
def zookeeper(logs: Path) -> Iterator[Ensemble]:
    with start("zookeeper", folder=logs, extra=["extendedTypesEnabled=true"]) as servers:
        yield servers


@pytest.fixture(scope="module")
def broker(zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("kafka")
    with broker_on(f"{zookeeper.nodes[0].address}{_CHROOT}", folder) as running:
        running.create_topic("t1", 2, retention_ms="60000")
        running.create_topic("t-2.x")
        running.create_topic(_LONG)
        running.add_user("alice", "geheim")
        yield running


@pytest.fixture(scope="module")
def kazoo(zookeeper: Ensemble) -> Iterator[Any]:
    with alice_on(zookeeper) as client:
        yield client


@pytest.fixture
def hide(kazoo: Any) -> Iterator[Callable[[str], object]]:
    with hiding(kazoo) as hide_one:
        yield hide_one


@pytest.fixture
def foreign(kazoo: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the path of an empty node."""
    path = f"/{request.function.__name__}"
    kazoo.create(path)
    yield path
    kazoo.delete(path, recursive=True)


@pytest.mark.parametrize("rows", [1, 7, 1_000])
def test_all_nodes_as_another_client_sees_them(broker: Broker, kazoo: Any, rows: int) -> None:
    """P40."""
    expected = _quiet(kazoo)
    found = scanned(broker.properties, rows=rows)
    assert found.rejected == []
    assert len(found.rows) == len(expected)
    assert {row.key: row for row in found.rows} == {
        path: _as_row(path, *node) for path, node in expected.items()
    }
    assert {f"/config/topics/{_LONG}".encode(), b"/config/users/alice"} < expected.keys()


def test_a_scan_writes_nothing(broker: Broker, kazoo: Any, logs: Path) -> None:
    """P40."""
    before = _quiet(kazoo)
    zxid = kazoo.last_zxid
    scanned(broker.properties, rows=7)
    scanned(broker.properties, under="/config")
    assert dict(_walk(kazoo)) == before
    done = [text for at, text in _transactions(logs) if zxid < at <= kazoo.last_zxid]
    assert len([text for text in done if text.startswith("createSession")]) == 2
    assert [text for text in done if not _OF_SESSIONS.fullmatch(text)] == []


@pytest.mark.parametrize("rows", [1, 7, 1_000])
def test_lasting_nodes_of_the_tree_become_keys(broker: Broker, kazoo: Any, rows: int) -> None:
    """P40."""
    nodes = _quiet(kazoo)
    found = mapped(Mapping("kafka", is_tree=True), scanned(broker.properties, rows=rows))
    assert _paths(found.skipped, Skipped.EPHEMERAL) == {
        f"/brokers/ids/{BROKER}".encode(),
        b"/controller",
    }
    assert _paths(found.skipped, Skipped.DIRECTORY) == {
        path for path, (data, stat) in nodes.items() if stat.numChildren and not data
    }
    assert found.rejected.keys() == {f"/brokers/topics/{_LONG}/partitions/0/state".encode()}
    lasting = nodes.keys() - found.skipped.keys() - found.rejected.keys()
    assert found.values == {f"kafka{path.decode()}": nodes[path][0] or b"" for path in lasting}
    assert json.loads(found.values["kafka/config/topics/t1"])["config"] == {"retention.ms": "60000"}
    assert found.values["kafka/admin/delete_topics"] == b""


def test_children_of_a_node_are_a_key_set(broker: Broker, tmp_path: Path) -> None:
    found = scanned(broker.properties, under="/config")
    values = mapped(Mapping("kafka", "/config", is_tree=True), found).values
    embedded = {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path / "store")}
    with PluginLocator().startup(embedded) as locator:
        storage = locator.storage(BYTES)
        storage.put_many(values)
        topics = set(storage.list("kafka/topics"))
    assert topics == {f"kafka/topics/{name}" for name in ("t1", "t-2.x", _LONG)}
    assert b"SCRAM-SHA-256" in values["kafka/users/alice"]


def test_unreadable_nodes_are_rejected(broker: Broker, hide: Callable[[str], object]) -> None:
    """P42. What has no other child than an unreadable one is still a directory."""
    mapping = Mapping("kafka", is_tree=True)
    before = mapped(mapping, scanned(broker.properties))
    for path in ("/config/users", "/cluster/id"):
        hide(f"{_CHROOT}{path}")
    for rows in (1, 1_000):
        after = mapped(mapping, scanned(broker.properties, rows=rows))
        assert after.rejected.keys() - before.rejected.keys() == {b"/config/users", b"/cluster/id"}
        assert before.values.keys() - after.values.keys() == {
            "kafka/config/users/alice",
            "kafka/cluster/id",
        }
        assert after.values.items() <= before.values.items()
        assert after.skipped[b"/cluster"] is Skipped.DIRECTORY


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_directory_has_its_children_in_other_spans(
    zookeeper: Ensemble, kazoo: Any, foreign: str, rows: int
) -> None:
    """P43."""
    nodes = {
        "a": None,
        "a-b": b"",
        "a/b": b"1",
        "a0": None,
        "a-b/c": None,
        "a.b": b"2",
        "a/b/c": b"",
    }
    for name, data in sorted(nodes.items()):
        kazoo.create(f"{foreign}/{name}", data)
    found = scanned(zookeeper.settings(), foreign, rows)
    result = mapped(Mapping("k", foreign, is_tree=True), found)
    assert result.values == {
        "k/a/b": b"1",
        "k/a/b/c": b"",
        "k/a-b/c": b"",
        "k/a0": b"",
        "k/a.b": b"2",
    }
    assert set(result.skipped) == {f"{foreign}{path}".encode() for path in ("", "/a", "/a-b")}
    assert result.rejected == {}


def test_nodes_of_every_kind(zookeeper: Ensemble, kazoo: Any, foreign: str, logs: Path) -> None:
    """P44. Servers do not tell clients which nodes are containers or have a time to live."""
    kazoo.create(f"{foreign}/persistent", b"v")
    sequential = kazoo.create(f"{foreign}/s-", b"v", sequence=True)
    ephemeral = {
        kazoo.create(f"{foreign}/ephemeral", b"v", ephemeral=True),
        kazoo.create(f"{foreign}/es-", b"v", ephemeral=True, sequence=True),
    }
    for request in (
        _Creation(f"{foreign}/container", 19, pack(">i", 4)),
        _Creation(f"{foreign}/ttl", 21, pack(">iq", 5, 3_600_000)),
    ):
        answer = kazoo.handler.async_result()
        kazoo._call(request, answer)
        answer.get()
    made_by = {text.split()[0] for _, text in _transactions(logs)}
    assert {"createContainer", "createTtl"} <= made_by
    found = scanned(zookeeper.settings(), foreign)
    result = mapped(Mapping("k", foreign, is_tree=True), found)
    assert result.values.keys() == {
        *("k/persistent", "k/container", "k/ttl"),
        sequential.replace(foreign, "k"),
    }
    assert _paths(result.skipped, Skipped.EPHEMERAL) == {path.encode() for path in ephemeral}
    kinds = {row.key.decode(): kind_of(row) for row in found.rows}
    assert {path for path, kind in kinds.items() if kind is Lifetime.EPHEMERAL} == ephemeral


class _Creation(NamedTuple):
    """A request of Kazoo's for a node of a kind that Kazoo does not know."""

    path: str
    type: int
    kind: bytes

    def serialize(self) -> bytes:
        plain = Create2(self.path, b"v", OPEN_ACL_UNSAFE, 0).serialize()
        return bytes(plain[:-4]) + self.kind

    def deserialize(self, *answer: Any) -> Any:
        return Create2.deserialize(*answer)


def _walk(kazoo: Any, path: str = "") -> Iterator[tuple[bytes, tuple[bytes | None, Any]]]:
    """Yield all nodes of the broker with data and stat, which has mzxid, cversion and the rest."""
    yield (path or "/").encode(), kazoo.get(f"{_CHROOT}{path}")
    for name in kazoo.get_children(f"{_CHROOT}{path}"):
        yield from _walk(kazoo, f"{path}/{name}")


def _quiet(kazoo: Any) -> dict[bytes, tuple[bytes | None, Any]]:
    """Return all nodes once the broker has stopped writing."""

    def unchanged() -> dict[bytes, tuple[bytes | None, Any]] | None:
        nodes = dict(_walk(kazoo))
        return nodes if dict(_walk(kazoo)) == nodes else None

    return eventually(unchanged, within=30, what="Kafka has stopped writing")


def _transactions(logs: Path) -> Iterator[tuple[int, str]]:
    """Yield all transactions of the server: their numbers and texts."""
    for log in logs.rglob("log.*"):
        told = run_tool(_TRANSACTIONS, "--dump", str(log))
        for zxid, text in re.findall(r" zxid (0x\w+) (.+)", told):
            yield int(zxid, 16), text


def _as_row(path: bytes, data: bytes | None, stat: Any) -> Row:
    owner = f"{stat.ephemeralOwner:#x}" if stat.ephemeralOwner else None
    return Row(path, data, stat.czxid, stat.version, stat.czxid, stat.mzxid, owner)


def _paths(skipped: dict[bytes, Skipped], kind: Skipped) -> set[bytes]:
    return {path for path, one in skipped.items() if one is kind}
