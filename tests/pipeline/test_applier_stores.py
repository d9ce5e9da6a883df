"""The bulk writer on every store: repetitions, crashes, rivals, and a target that stands still."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from kip30 import BYTES, NotElectedError, PluginLocator
from kip30.config import Written
from kip30.driver.records import Entry
from kip30.names import parse_key
from kip30.pipeline.write.applier import Applied, Applier, NewRecord, WriteOutcome
from kip30.pipeline.write.run_leader import RunLeader
from kip30_conformance.polling import eventually, time_scale
from tests.unit.etcd.admin import Admin, encoded
from tests.unit.pipeline.requests import Requests

from .applying_main import records
from .conftest import Target
from .tasks import Task

SECONDS = 10
MANY = records(0, 400)


def applier(client: PluginLocator, run: str = "r") -> Applier:
    return Applier(client.backend, run, seconds=SECONDS * time_scale())


def count(applied: list[Applied]) -> dict[str, int]:
    return dict(Counter(one.outcome.value for one in applied))


def entries(client: PluginLocator, given: list[NewRecord]) -> list[Entry | None]:
    keys = [parse_key(one.key) for one in given]
    return client.backend.storage.read(keys).result(SECONDS * time_scale())


def data(client: PluginLocator, given: list[NewRecord]) -> list[bytes | None]:
    return [entry and entry.data for entry in entries(client, given)]


@pytest.mark.case("P09")
def test_a_rerun_writes_nothing(target: Target) -> None:
    client = target.open_client()
    first = applier(client).create(MANY)
    assert count(first) == {"written": 400}
    assert data(client, MANY) == [one.data for one in MANY]
    before = entries(client, MANY)
    assert applier(client).create(MANY) == first
    assert count(applier(client, "another").create(MANY)) == {"same": 400}
    assert entries(client, MANY) == before


@pytest.mark.case("P09")
@pytest.mark.parametrize("servers", ["etcd"], indirect=True)
def test_a_rerun_leaves_the_revision_of_etcd(target: Target) -> None:
    client = target.open_client()
    first = applier(client).create(MANY)
    assert target.ensemble is not None
    admin = Admin(target.ensemble.nodes[0].address)

    def revision() -> str:
        header = admin.tell("kv/range", key=encoded(b"a"))["header"]
        return str(header["revision"])

    before = revision()
    assert applier(client).create(MANY) == first
    assert revision() == before


@pytest.mark.case("P10", "P11")
def test_every_record_has_the_outcome_it_deserves(target: Target) -> None:
    client = target.open_client()
    limit = client.backend.limits.value_bytes
    client.storage(BYTES).put_many({MANY[3].key: b"theirs", MANY[5].key: MANY[5].data})
    bad = [NewRecord("n/", b"", "1"), NewRecord("n/large", bytes(limit + 1), "1")]
    given = [*MANY[:10], *bad, MANY[0], NewRecord(MANY[1].key, b"other", "9")]
    for _ in range(2):
        applied = applier(client).create(given)
        assert [one.key for one in applied] == [one.key for one in given]
        assert [one.outcome for one in applied[3:6:2]] == [WriteOutcome.CONFLICT, WriteOutcome.SAME]
        assert [one.outcome.value for one in applied[10:]] == [
            *("rejected", "rejected", "same", "conflict")
        ]
        assert count(applied) == {"written": 8, "conflict": 2, "same": 2, "rejected": 2}
    assert data(client, [MANY[3]]) == [b"theirs"]


@pytest.mark.case("P11")
def test_the_largest_values_arrive(target: Target) -> None:
    client = target.open_client()
    limit = client.backend.limits.value_bytes
    large = [NewRecord(f"large/{number}", bytes([number]) * limit, "1") for number in range(9)]
    assert count(applier(client).create(large)) == {"written": 9}
    assert data(client, large) == [one.data for one in large]
    assert count(applier(client).create(large)) == {"written": 9}


@pytest.mark.case("P12")
def test_a_task_that_is_killed_is_counted_right_when_repeated(target: Target) -> None:
    client = target.open_client()
    with Task(target.properties) as task:
        task.send("create", "r", 0, 400, 400)
        eventually(lambda: sum(one is not None for one in entries(client, MANY)) > 100, within=30)
        task.kill()
    there = entries(client, MANY)
    assert 100 < sum(one is not None for one in there) < 400
    assert count(applier(client).create(MANY)) == {"written": 400}
    after = entries(client, MANY)
    assert [now for now, old in zip(after, there, strict=True) if old] == [*filter(None, there)]
    assert data(client, MANY) == [one.data for one in MANY]


@pytest.mark.case("P13")
def test_a_raced_key_conflicts_alone(target: Target) -> None:
    client, rival = target.open_client(), target.open_client().storage(BYTES)
    rival.put(MANY[399].key, b"theirs")
    writer = applier(client)
    writer.create(MANY[399:])  # from now on it looks before it writes
    requests = Requests(client.backend.storage)
    requests.before_write = lambda: rival.put(MANY[7].key, b"raced")
    applied = writer.create(MANY[:100])
    assert requests.counted() == ([100, 1], [100])
    assert count(applied) == {"written": 99, "conflict": 1}
    assert applied[7].outcome is WriteOutcome.CONFLICT
    assert data(client, [MANY[7]]) == [b"raced"]


@pytest.mark.case("P16")
def test_a_target_that_stands_still_leaves_unknown_and_a_rerun_completes(target: Target) -> None:
    client = target.open_client(**{"plugin.operation.timeout.ms": 2000})
    requests = Requests(client.backend.storage)
    writer = Applier(client.backend, "r", seconds=1, rate=1000)
    with frozen(target) as freeze:
        requests.before_write = lambda: freeze() if len(requests.writes) == 1 else None
        applied = writer.create(MANY)
    assert count(applied) == {"written": 50, "unknown": 350}
    assert requests.writes == [50, 50]
    assert applied[399].detail
    again = eventually(lambda: completed(client), within=30)
    assert again[:50] == applied[:50]
    assert applier(client).create(MANY) == again


def completed(client: PluginLocator) -> list[Applied] | None:
    applied = applier(client).create(MANY)
    return applied if count(applied) == {"written": 400} else None


@contextmanager
def frozen(target: Target) -> Generator[Callable[[], None]]:
    """Yield what has the store stand still until the block ends."""
    with ExitStack() as thaw:

        def freeze() -> None:
            if target.ensemble is not None:
                thaw.enter_context(target.ensemble.frozen())
                return
            file = Path(str(target.properties["plugin.embedded.directory"])) / "kip30.db"
            other = thaw.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
            other.execute("BEGIN IMMEDIATE")

        yield freeze


@pytest.mark.case("P08")
def test_a_stopped_driver_writes_nothing_after_its_successor_began(target: Target) -> None:
    short: dict[str, Written] = {
        **target.properties,
        "plugin.session.timeout.ms": 3000,
        "plugin.operation.timeout.ms": 3000,
    }
    client = target.open_client()
    with Task(short) as former:
        epoch = former.call("drive", "r")
        assert former.call("create", "r", 0, 200, 0) == {"written": 200}
        with RunLeader(client, "r") as leader:
            with pytest.raises(NotElectedError, match="driven by"):
                leader.fence(timeout_seconds=0)
            former.stop()
            fence = leader.fence(timeout_seconds=60 * time_scale())
            assert fence.epoch > epoch
            former.send("create", "r", 200, 400, 0)
            former.resume()
            told = former.answer()
            # Connections that stood still may lose an answer, but no write is done.
            assert told.pop("fenced") + told.pop("unknown", 0) == 200
            assert not told
            assert data(client, MANY[200:]) == [None] * 200
            writer = Applier(client.backend, "r", seconds=SECONDS * time_scale(), fence=fence)
            assert count(writer.create(MANY)) == {"written": 400}


@pytest.mark.parametrize("servers", ["etcd"], indirect=True)
def test_a_foreign_record_is_the_only_conflict(target: Target) -> None:
    client = target.open_client()
    assert target.ensemble is not None
    place = f"/{target.properties['plugin.namespace']}/kv/{MANY[2].key}"
    Admin(target.ensemble.nodes[0].address).put(place, b"foreign")
    writer = applier(client)
    for _ in range(2):  # the second time it looks first
        applied = writer.create(MANY[:10])
        assert count(applied) == {"written": 9, "conflict": 1}
        assert "no record" in applied[2].detail
