"""Writing together: nothing lost, nothing half done, and a log that stays short."""

import os
import shutil
import sqlite3
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Backend
from kip30.driver.records import Claim, Condition, Fence, Kind, Target, Version, Write
from kip30.errors import (
    FencedError,
    KeyExistsError,
    KeyMissingError,
    StoreError,
    UnavailableError,
    VersionConflictError,
)
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend
from kip30_backends.embedded.connections import LOG_BYTES

KEY = Key("", "key")


def put(backend: Backend, key: Key, data: bytes | None, **more: Any) -> Version:
    condition = more.pop("condition", Condition.ANY)
    return backend.storage.write(Write(key, "n", data, condition, **more)).result()


def test_processes_count_without_losing_any(open_backend: Any, start_child: Any) -> None:
    backend = open_backend()
    put(backend, KEY, b"0")
    children = [start_child("auto", "3", "count", "key", "100") for _ in range(4)]
    assert [child.line() for child in children] == ["counted 100"] * 4
    (entry,) = backend.storage.read([KEY]).result()
    assert entry is not None
    assert entry.data == b"400"


def test_threads_of_one_backend_count_without_losing_any(backend: Backend) -> None:
    put(backend, KEY, b"0")

    def count() -> None:
        done = 0
        while done < 50:
            (entry,) = backend.storage.read([KEY]).result()
            assert entry is not None
            try:
                put(backend, KEY, str(int(entry.data) + 1).encode(), condition=entry.version)
            except VersionConflictError:
                continue
            done += 1

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (entry,) = backend.storage.read([KEY]).result()
    assert entry is not None
    assert entry.data == b"200"


def test_a_killed_writer_leaves_whole_records(
    open_backend: Any, start_child: Any, directory: Path
) -> None:
    backend = open_backend()
    for _ in range(5):
        child = start_child("auto", "3", "write", "key", "100000")
        before = backend.storage.read([KEY]).result()[0]
        while backend.storage.read([KEY]).result()[0] == before:
            pass
        child.kill()
        put(backend, Key("", "mine"), b"still writable")
    with closing(sqlite3.connect(directory / "kip30.db")) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_writes_are_each_on_their_own(backend: Backend) -> None:
    put(backend, Key("", "there"), b"old")
    writes = [
        Write(Key("", "a"), "n", b"1", Condition.ABSENT),
        Write(Key("", "there"), "n", b"2", Condition.ABSENT),
        Write(Key("", "a"), "n", b"3", Condition.ABSENT),
        Write(Key("", "gone"), "n", None, Condition.PRESENT),
        Write(Key("", "b"), "n", b"5", Condition.ANY, Fence("s", 7)),
        Write(Key("", "c"), "n", b"6", Condition.ANY),
    ]
    errors = [type(future.exception()) for future in backend.storage.write_many(writes)]
    none = type(None)
    assert errors == [none, KeyExistsError, KeyExistsError, KeyMissingError, FencedError, none]
    assert backend.storage.list_names("", "", 10).result().names == ["a", "c", "there"]
    assert backend.storage.write_many([]) == []


def test_many_writes_wait_for_another_program_no_longer_than_one(
    open_backend: Any, locked: Any, took: Any
) -> None:
    backend = open_backend(operation=2)
    writes = [Write(Key("", f"k{n}"), "n", b"", Condition.ANY) for n in range(1000)]
    answers: list[Future[Version]] = []
    with locked():
        assert took(lambda: answers.extend(backend.storage.write_many(writes))) < 3
    assert {type(answer.exception()) for answer in answers} == {UnavailableError}
    assert len(answers) == 1000
    assert backend.storage.list_names("", "", 1).result().names == []


def test_a_fence_holds_while_its_leader_does(open_backend: Any) -> None:
    backend = open_backend()
    claim = backend.election.claim("s", "c", "n", b"").result()
    assert isinstance(claim, Claim)
    epoch = claim.entry.version.major
    put(backend, KEY, b"1", fence=Fence("s", epoch))
    with pytest.raises(FencedError):
        put(backend, KEY, b"2", fence=Fence("s", epoch - 1), condition=Condition.ABSENT)
    backend.election.release("s", claim).result()
    with pytest.raises(FencedError):
        put(backend, KEY, b"2", fence=Fence("s", epoch))


def test_versions_and_epochs_go_on_after_everything_was_closed(open_backend: Any) -> None:
    versions, epochs = [], []
    for _ in range(3):
        backend = open_backend()
        versions.append(put(backend, KEY, b"1"))
        put(backend, KEY, None)
        claim = backend.election.claim("s", "c", "n", b"").result()
        epochs.append(claim.entry.version.major)
        backend.close()
    assert versions == sorted(set(versions))
    assert epochs == [1, 2, 3]


def test_roots_do_not_see_each_other(open_backend: Any) -> None:
    one, two = open_backend(namespace="one"), open_backend(namespace="two")
    put(one, KEY, b"1")
    one.membership.claim("g", "m", "n", b"").result()
    one.election.claim("s", "c", "n", b"").result()
    assert two.storage.read([KEY]).result() == [None]
    assert two.storage.list_names("", "", 10).result().names == []
    for target in (Target(Kind.GROUP, "g"), Target(Kind.SERVICE, "s"), Target(Kind.NAMESPACE, "")):
        assert two.observe.snapshot(target).result().entries == {}
    assert isinstance(two.election.claim("s", "c", "n", b"").result(), Claim)
    two.membership.claim("g", "m", "n2", b"").result()


def test_the_write_ahead_log_stays_bounded(backend: EmbeddedBackend, directory: Path) -> None:
    log = directory / "kip30.db-wal"
    largest = 0
    for number in range(3000):
        put(backend, Key("", str(number % 50)), b"x" * 10_000)
        largest = max(largest, log.stat().st_size)
    assert LOG_BYTES < largest < 2 * LOG_BYTES


def test_the_log_stays_bounded_with_large_values(backend: EmbeddedBackend, directory: Path) -> None:
    for number in range(100):
        put(backend, Key("", str(number % 5)), b"x" * 250_000)
        assert (directory / "kip30.db-wal").stat().st_size < 3 * LOG_BYTES


def test_a_log_that_an_open_reader_makes_long_is_named_at_each_doubling(
    backend: EmbeddedBackend,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kip30_backends.embedded.database.LOG_BYTES", 100_000)
    monkeypatch.setattr("kip30_backends.embedded.database._LOOK_AT_LOG_EVERY", 1)
    backend._resources.database._warn_at_bytes = 200_000
    log, value = directory / "kip30.db-wal", b"x" * 10_000
    put(backend, KEY, value)
    with closing(sqlite3.connect(directory / "kip30.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM kv").fetchall()
        while log.stat().st_size < 900_000:
            put(backend, KEY, value)
    assert len(caplog.records) == 3
    assert f"{log} has grown to 0 MB: a program, such as a backup" in caplog.text
    put(backend, KEY, value)
    largest = log.stat().st_size
    for _ in range(200):
        put(backend, KEY, value)
    assert log.stat().st_size <= largest
    assert len(caplog.records) == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system with 3 MB, less than the log may have."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3M,mode=0700", "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user cannot mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_smaller_than_the_log_may_be_is_enough(
    small_disk: Path, open_backend: Any
) -> None:
    backend = open_backend(directory=small_disk / "state")
    for number in range(2000):
        put(backend, Key("", str(number % 40)), b"x" * 3_000)
    backend.close()


def test_a_disk_that_was_full_takes_writes_again_as_soon_as_it_has_space(
    small_disk: Path, open_backend: Any
) -> None:
    backend = open_backend(directory=small_disk / "state")
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    writes = (put(backend, Key("", str(number)), b"x" * 3_000) for number in range(2000))
    with pytest.raises(StoreError, match=r"no space left|cannot grow"):
        deque(writes, maxlen=0)
    filler.unlink()
    for number in range(2000):
        put(backend, Key("", str(number % 40)), b"x" * 3_000)
    backend.close()


def test_a_disk_that_fills_up_while_the_database_is_created_leaves_none_or_a_whole_one(
    small_disk: Path, open_backend: Any
) -> None:
    filler = small_disk / "filler"
    outcomes = set[str]()
    for pages in range(0, 50, 2):
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        os.truncate(filler, filler.stat().st_size - pages * 4096)
        state = small_disk / "state"
        try:
            open_backend(directory=state).close()
            outcomes.add("created")
        except StoreError:
            outcomes.add("refused")
        filler.unlink()
        open_backend(directory=state).close()
        shutil.rmtree(state)
    assert outcomes == {"created", "refused"}


def test_checkpoints_while_others_write_lose_nothing(
    open_backend: Any, start_child: Any, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_backend()
    monkeypatch.setattr("kip30_backends.embedded.database.LOG_BYTES", 100_000)
    monkeypatch.setattr("kip30_backends.embedded.database._LOOK_AT_LOG_EVERY", 1)
    children = [start_child("auto", "3", "write", f"key{n}", "400") for n in range(2)]
    for number in range(400):
        put(backend, Key("", "mine"), str(number).encode())
    assert [child.line() for child in children] == ["wrote 400"] * 2
    keys = [Key("", name) for name in ("mine", "key0", "key1")]
    assert [entry and entry.data for entry in backend.storage.read(keys).result()] == [b"399"] * 3
    with closing(sqlite3.connect(directory / "kip30.db")) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_interrupted_transaction_leaves_nothing_locked(backend: EmbeddedBackend) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backend._resources.database.write(interrupted)
    put(backend, KEY, b"1")


@pytest.mark.parametrize(("synchronous", "level"), [("normal", 1), ("full", 2)])
def test_an_epoch_is_synchronised_and_data_as_set(
    open_backend: Any, synchronous: str, level: int
) -> None:
    backend = open_backend(synchronous=synchronous)
    connection = backend._resources.connections.slot().connection

    def now() -> int:
        found: int = connection.execute("PRAGMA synchronous").fetchone()[0]
        return found

    levels: list[int] = []
    backend._resources.database.write(lambda _: levels.append(now()), durable=True)
    backend._resources.database.write(lambda _: levels.append(now()))
    assert levels == [2, level]
