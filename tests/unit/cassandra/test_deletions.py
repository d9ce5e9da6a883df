"""Partitions through which many short-lived rows have passed: they are read as quickly as others.

The node of these tests reads past a fiftieth of the deletions that nodes allow by default, and
deletions are folded ten times as often.
"""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30_backends.cassandra import tombstone_folding
from kip30_backends.cassandra.calls import Answer, TypedRequest
from kip30_backends.cassandra.tombstone_folding import PartitionFolding, between
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.clients import PATIENT, Open, opening

from .admin import Admin

pytestmark = pytest.mark.large

SCALE = 50
MOST_DELETIONS = 100_000 // SCALE
JOBS = 8_000
BATCH = 200


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    thresholds = [f"tombstone_{at}_threshold: {MOST_DELETIONS}" for at in ("warn", "failure")]
    folder = tmp_path_factory.mktemp("deletions")
    with needed("cassandra", folder=folder, extra=thresholds) as servers:
        yield servers


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(ensemble, namespace) as open_one:
        yield lambda **more: open_one(**{**PATIENT, **more})


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold ten times as often as by default."""
    monkeypatch.setattr(tombstone_folding, "EVERY", tombstone_folding.EVERY // 10)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold nothing before a read fails."""
    monkeypatch.setattr(tombstone_folding, "EVERY", 10**12)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as one:
        yield one


def pass_through(client: PluginLocator, pool: ThreadPoolExecutor, jobs: int) -> list[float]:
    """Put and delete *jobs* keys of ``jobs``; return how long each batch of them took."""
    storage, took = client.storage(), list[float]()
    for first in range(0, jobs, BATCH):
        names = [f"jobs/{first + i:07}" for i in range(BATCH)]
        begun = time.monotonic()
        storage.put_many(dict.fromkeys(names, "job"))
        list(pool.map(storage.delete, names))
        took.append(time.monotonic() - begun)
    return took


def signature(client: PluginLocator, namespace: str) -> object:
    """Return the signatures that settle writes whose response was lost."""
    backend: Any = client.backend
    calls = backend._resources.calls
    asked = calls.statements.bind("read_done", namespace, "jobs")
    return calls.send(TypedRequest(asked, _first)).result()


def _first(answer: Answer) -> object:
    return answer.rows[0]["done"]


@pytest.mark.usefixtures("often")
def test_listeners_and_lists_outlive_many_deletions(
    open_client: Open, namespace: str, pool: ThreadPoolExecutor
) -> None:
    client, watching = open_client(), open_client()
    values, keys = list[str | None](), list[int]()
    client.storage().put("jobs/zz", "first")
    registry = watching.listener_registry()
    registry.add_value_change_listener("jobs/zz", lambda change: values.append(change.value))
    registry.add_key_set_change_listener("jobs", lambda change: keys.append(len(change.keys)))
    took = pass_through(client, pool, JOBS)
    fourth = len(took) // 4
    assert median(took[-fourth:]) <= 1.5 * median(took[:fourth])
    client.storage().update("jobs/zz", "last")
    eventually(lambda: values[-1:] == ["last"], what="the value's listener hears of the last")
    client.storage().put("jobs/zy", "another")
    eventually(lambda: keys[-1:] == [2], what="the key set's listener hears of it")
    assert list(client.storage().list("jobs")) == ["jobs/zy", "jobs/zz"]
    assert signature(client, namespace)


@pytest.mark.usefixtures("never")
def test_a_reader_folds_a_partition_that_deletions_make_unreadable(
    open_client: Open, pool: ThreadPoolExecutor, admin: Admin, namespace: str
) -> None:
    client = open_client()
    client.storage().put_many({"jobs/0001000": "a", "jobs/zz": "b"})
    pass_through(client, pool, MOST_DELETIONS // 2)
    for name in range(10_000, 10_000 + 3 * MOST_DELETIONS):  # as former releases deleted
        admin.tell(
            "UPDATE kip30.records SET version = null, nonce = null, data = null"
            " WHERE root = %s AND namespace = 'jobs' AND name = %s",
            namespace,
            f"{name:07}",
        )
    keys = list[int]()
    assert list(client.storage().list("jobs")) == ["jobs/0001000", "jobs/zz"]
    open_client().listener_registry().add_key_set_change_listener(
        "jobs", lambda change: keys.append(len(change.keys))
    )
    client.storage().put("jobs/new", "c")
    eventually(lambda: keys[-1:] == [3], what="the listener hears of it")
    found = client.storage().get("jobs/0001000")
    assert found
    assert found.value == "a"


@pytest.mark.usefixtures("often")
def test_groups_outlive_many_leaves(open_client: Open, pool: ThreadPoolExecutor) -> None:
    client = open_client()
    group, counts = client.group_membership("g"), list[int]()
    open_client().group_membership("g").add_listener(
        lambda change: counts.append(len(change.members))
    )
    group.join("stays", "")

    def come_and_go(number: int) -> None:
        group.join(f"m{number:07}", "")
        group.leave(f"m{number:07}")

    list(pool.map(come_and_go, range(2 * MOST_DELETIONS)))
    assert list(group.membership()) == ["stays"]
    group.join("last", "")
    eventually(lambda: counts[-1:] == [2], what="the listener hears of the last")


@pytest.mark.usefixtures("often")
def test_nothing_acknowledged_is_lost_to_folding(
    open_client: Open, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tombstone_folding, "EVERY", 5)
    clients = [open_client() for _ in range(2)]
    numbers, lost = itertools.count(), list[str]()
    until = time.monotonic() + 4

    def work(client: PluginLocator) -> None:
        storage = client.storage()
        while time.monotonic() < until:
            key = f"jobs/{next(numbers) * 7919 % 1000:04}-{threading.get_ident()}"
            storage.put(key, "v")
            if not storage.get(key):
                lost.append(key)
            storage.update(key, "w")
            storage.delete(key)
            if storage.get(key):
                lost.append(key)

    list(pool.map(work, clients * 12))
    assert not lost


@pytest.mark.usefixtures("never")
def test_a_listener_that_cannot_be_served_is_warned_of_once(
    open_client: Open,
    pool: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, keys = open_client(), list[int]()
    client.listener_registry().add_key_set_change_listener(
        "jobs", lambda change: keys.append(len(change.keys))
    )

    def warnings() -> list[str]:
        return [one.message for one in caplog.records if "listeners are" in one.message]

    with monkeypatch.context() as patch:
        patch.setattr(PartitionFolding, "fold", _fold_nothing)
        pass_through(client, pool, 2 * MOST_DELETIONS)
        eventually(warnings, what="a warning")
        assert [one.startswith("listeners are not notified") for one in warnings()] == [True]
    client.storage().put("jobs/last", "v")
    eventually(lambda: keys[-1:] == [1], what="it is served again")
    assert len(warnings()) <= 2  # the second one says that it is over


def _fold_nothing(_: PartitionFolding) -> int:
    return 0


def test_a_name_between_others_is_found() -> None:
    for after, until in (
        ("", None),
        ("a", "b"),
        ("a", "aa"),
        ("é", "ê"),
        ("\ud7ff", "\ue000"),
        ("z", None),
    ):
        middle = between(after, until)
        assert after.encode() < middle.encode()
        assert until is None or middle.encode() < until.encode()
