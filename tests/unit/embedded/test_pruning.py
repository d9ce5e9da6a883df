"""Services that are not led any more can be removed, and no epoch comes again."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Claim, Condition, Fence, Kind, Target, Write
from kip30.errors import FencedError, StoreError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, database_file, service_pruning
from kip30_backends.embedded.database import Transaction
from kip30_backends.embedded.service_pruning import Pruning

DAY = 86_400.0


def prune(
    backend: EmbeddedBackend, at: float, unused: float = DAY, *, dry_run: bool = False
) -> int:
    engine, after, count = backend._resources, None, 0
    while after != "":
        pruning = Pruning(engine.root, unused, after or "", now=at)
        done = pruning.done(engine.database, dry_run)
        count, after = count + done.counts.get(Kind.SERVICE, 0), done.after
    return count


def led(backend: EmbeddedBackend, service: str) -> Claim:
    claim = backend.election.claim(service, "c", service, b"").result()
    assert isinstance(claim, Claim)
    return claim


def was_led(backend: EmbeddedBackend, service: str, times: int = 1) -> int:
    epoch = 0
    for _ in range(times):
        claim = led(backend, service)
        epoch = claim.entry.version.major
        backend.election.release(service, claim).result()
    return epoch


def rows(backend: EmbeddedBackend) -> list[bytes]:
    query = "SELECT scope FROM service WHERE root = ? AND scope != x'' ORDER BY scope"
    root = (backend._resources.root,)
    return backend._resources.database.read(
        lambda connection: [row[0] for row in connection.execute(query, root)]
    )


def test_services_without_a_leader_for_a_day_are_removed(backend: EmbeddedBackend) -> None:
    was_led(backend, "old")
    held = led(backend, "held")
    assert prune(backend, 0) == 0
    was_led(backend, "new")
    assert prune(backend, 0.5 * DAY) == 0
    assert prune(backend, DAY) == 1
    assert rows(backend) == [b"held", b"new"]
    assert prune(backend, 2 * DAY) == 1
    backend.election.release("held", held).result()
    assert prune(backend, 3 * DAY) == 0
    assert prune(backend, 4 * DAY) == 1
    assert rows(backend) == []


def test_no_epoch_comes_again(backend: EmbeddedBackend) -> None:
    epochs = {name: was_led(backend, name, times) for name, times in {"a": 5, "b": 2}.items()}
    for day in range(1, 6):
        prune(backend, day * DAY)
        prune(backend, (day + 0.5) * DAY, unused=0)
        assert not rows(backend)
        for name, epoch in epochs.items():
            epochs[name] = was_led(backend, name)
            assert epochs[name] > epoch
    assert was_led(backend, "never led before") > 0


def test_services_that_stay_count_on(backend: EmbeddedBackend) -> None:
    kept = led(backend, "kept")
    was_led(backend, "gone", 50)
    prune(backend, 0)
    prune(backend, DAY)
    backend.storage.write(Write(Key("", "k"), "n", b"", Condition.ANY, Fence("kept", 1))).result()
    backend.election.release("kept", kept).result()
    assert led(backend, "kept").entry.version.major == 2
    assert led(backend, "gone").entry.version.major == 51


def test_a_fence_of_a_service_that_was_removed_is_over(backend: EmbeddedBackend) -> None:
    epoch = was_led(backend, "s")
    prune(backend, 0)
    prune(backend, DAY)
    fenced = Write(Key("", "k"), "n", b"", Condition.ANY, Fence("s", epoch))
    for _ in range(2):
        with pytest.raises(FencedError):
            backend.storage.write(fenced).result()
        led(backend, "s")


def test_only_one_root_is_pruned(open_backend: Any) -> None:
    one, two = open_backend(namespace="one"), open_backend(namespace="two")
    was_led(one, "s", 3)
    was_led(two, "s", 3)
    prune(one, 0)
    assert prune(one, DAY) == 1
    assert rows(two) == [b"s"]
    assert was_led(two, "t") == 1
    assert was_led(one, "t") == 4


def test_a_pruned_service_is_read_as_absent(backend: EmbeddedBackend) -> None:
    was_led(backend, "s")
    prune(backend, 0)
    prune(backend, DAY)
    state = backend.observe.snapshot(Target(Kind.SERVICE, "s")).result()
    assert not state.entries
    assert not state.unreadable


def test_a_service_that_was_led_until_lately_stays(backend: EmbeddedBackend) -> None:
    claim = led(backend, "s")
    prune(backend, 0)
    backend.election.release("s", claim).result()
    assert prune(backend, DAY) == 0
    assert prune(backend, 2 * DAY) == 1


def test_a_service_whose_leader_died_lately_stays(open_backend: Any) -> None:
    backend, other = open_backend(), open_backend()
    led(other, "s")
    prune(backend, 0)
    other.close()
    assert backend.observe.snapshot(Target(Kind.SERVICE, "s")).result().entries == {}
    assert prune(backend, DAY) == 0
    assert prune(backend, 2 * DAY) == 1


def test_without_a_time_all_goes_at_once(backend: EmbeddedBackend) -> None:
    was_led(backend, "s")
    assert prune(backend, 0, unused=0) == 1


def test_a_dry_run_changes_nothing(backend: EmbeddedBackend) -> None:
    was_led(backend, "s")
    assert prune(backend, 0, dry_run=True) == 0
    assert prune(backend, 0, unused=0, dry_run=True) == 1
    assert version_of(backend._resources.database.file) == 1
    prune(backend, 0)
    assert prune(backend, DAY, dry_run=True) == prune(backend, DAY, dry_run=True) == 1
    assert rows(backend) == [b"s"]


def test_one_call_looks_at_few(backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_pruning, "_ROWS", 2)
    held = led(backend, "b")
    for name in "acde":
        was_led(backend, name, ord(name))
    engine = backend._resources
    first = Pruning(engine.root, 0).done(engine.database, dry_run=False)
    assert (first.counts, bool(first.after)) == ({Kind.SERVICE: 1}, True)
    assert rows(backend) == [b"b", b"c", b"d", b"e"]
    assert led(backend, "a").entry.version.major == ord("a") + 1
    backend.election.release("b", held).result()
    assert prune(backend, 0, unused=0, dry_run=True) == 4
    assert prune(backend, 0, unused=0) == 4


def test_notes_do_not_add_up(backend: EmbeddedBackend) -> None:
    for second in range(100):
        was_led(backend, "s")
        prune(backend, second * 60.0)
    count = "SELECT count(*) FROM mark"
    assert backend._resources.database.read(lambda c: c.execute(count).fetchone()[0]) == 2


def test_numbers_that_no_election_gave_stay(backend: EmbeddedBackend) -> None:
    was_led(backend, "s")
    for planted in (2**63 - 1, "text", -1):
        backend._resources.database.write(partial(plant, planted))
        assert prune(backend, 0, unused=0) == 0
    assert was_led(backend, "t") == 1


def plant(epoch: object, transaction: Transaction) -> None:
    transaction.execute("UPDATE service SET epoch = ?", (epoch,))


def version_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version


def test_an_older_kip30_does_not_open_what_was_pruned(
    open_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend()
    monkeypatch.setattr(database_file, "VERSION", 1)
    open_backend()
    prune(backend, 0)
    with pytest.raises(StoreError, match="newer kip30"):
        open_backend()


def test_an_older_kip30_that_is_open_already_repeats_no_epoch(backend: EmbeddedBackend) -> None:
    was_led(backend, "old", 3)
    was_led(backend, "kept")
    older = sqlite3.connect(backend._resources.database.file, isolation_level=None)
    lead = "INSERT OR REPLACE INTO service (epoch, rev, root, scope) VALUES (?, 9, ?, ?)"
    root = backend._resources.root
    with closing(older):
        older.execute(lead, (4, root, b"old"))
        assert prune(backend, 0, unused=0) == 2
        for epoch in (1, 4):
            with pytest.raises(sqlite3.IntegrityError, match="upgrade this one"):
                older.execute(lead, (epoch, root, b"old"))
        assert was_led(backend, "old") == 5
        older.execute(lead, (6, root, b"old"))
        older.execute(lead, (1, root + 1, b"old"))
    assert was_led(backend, "old") == 7
