"""Bulk reading of the embedded store: from copies of one moment, with nothing made beside it."""

import gc
import os
import resource
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Context
from kip30.driver.clock import SystemClock
from kip30.driver.records import Condition, Write
from kip30.driver.scanning import Change, Layout, Position, Row, ScanDriver, Span, View
from kip30.errors import PositionLostError, StoreError, UnsupportedError
from kip30.names import Key
from kip30.runtime.resolution import scanner
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings, scanning
from kip30_backends.embedded.liveness_locks import held_off
from kip30_backends.embedded.scanning import open_copy, path_of
from kip30_conformance.clients.fork_calls import in_forked_child
from tests.unit.removed_files import removed_again_and_again

OpenScanner = Callable[..., ScanDriver]
ALL = 1_000_000


@pytest.fixture
def open_scanner(directory: Path) -> Iterator[OpenScanner]:
    with ExitStack() as scanners:

        def open_one(namespace: str = "root", **view: Any) -> ScanDriver:
            context = Context(
                clock=SystemClock(),
                namespace=namespace,
                session_timeout_seconds=6,
                operation_timeout_seconds=5,
                connect_timeout_seconds=5,
                margin_seconds=1,
            )
            settings = EmbeddedSettings(directory=directory)
            return scanners.enter_context(EmbeddedBackend.scanner(context, settings, View(**view)))

        yield open_one


def put(backend: EmbeddedBackend, name: str, data: bytes = b"v") -> None:
    backend.storage.write(Write(Key("n", name), "nonce", data, Condition.ANY)).result()


def rows_of(store: ScanDriver, at: Position | None = None) -> list[Row]:
    at = at or store.position()
    pages = [page for span in store.plan(at, ALL) for page in store.scan(span, at)]
    return [row for page in pages for row in page.rows]


def names_of(store: ScanDriver, at: Position | None = None) -> list[bytes]:
    return [row.key for row in rows_of(store, at)]


def entries(directory: Path) -> dict[str, tuple[int, int]]:
    found = {entry: entry.lstat() for entry in directory.rglob("*")}
    return {str(entry): (of.st_mtime_ns, of.st_size) for entry, of in found.items()}


def test_there_must_be_a_database(open_scanner: OpenScanner, directory: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no .*kip30\.db"):
        open_scanner()
    assert not directory.exists()


def test_a_database_in_no_use_is_read_and_left_as_it_is(
    open_backend: Any, open_scanner: OpenScanner, directory: Path
) -> None:
    backend = open_backend()
    put(backend, "k")
    backend.close()
    before = entries(directory)
    assert names_of(open_scanner()) == [b"n/k"]
    assert entries(directory) == before


def test_a_key_that_is_only_in_the_log_is_read(
    backend: EmbeddedBackend, open_scanner: OpenScanner, directory: Path
) -> None:
    put(backend, "k")
    assert (directory / "kip30.db-wal").stat().st_size
    assert names_of(open_scanner()) == [b"n/k"]


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_file_that_is_no_database_is_refused(
    open_scanner: OpenScanner, directory: Path, content: bytes
) -> None:
    directory.mkdir(0o700)
    (directory / "kip30.db").write_bytes(content)
    with pytest.raises(StoreError, match=r"kip30\.db"):
        open_scanner().position()
    assert (directory / "kip30.db").read_bytes() == content


def test_a_database_of_another_program_is_refused(
    open_scanner: OpenScanner, directory: Path
) -> None:
    directory.mkdir(0o700)
    with closing(sqlite3.connect(directory / "kip30.db")) as other:
        other.execute("CREATE TABLE kv (name TEXT)")
    with pytest.raises(StoreError, match="was not made by kip30"):
        open_scanner().position()


def test_a_directory_of_others_is_refused(
    backend: EmbeddedBackend, open_scanner: OpenScanner, directory: Path
) -> None:
    put(backend, "k")
    directory.chmod(0o777)
    with pytest.raises(StoreError, match="can be written by other users"):
        open_scanner()


def test_there_is_no_raw_view(backend: EmbeddedBackend, open_scanner: OpenScanner) -> None:
    put(backend, "k")
    with pytest.raises(UnsupportedError, match="nothing that kip30 did not write"):
        open_scanner(layout=Layout.RAW)


def test_only_its_owner_may_read_or_write_a_copy(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    put(backend, "k")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    at = open_scanner(scratch=scratch).position()
    assert list(scratch.iterdir()) == [path_of(scratch, int(at.at))]
    assert stat.S_IMODE(path_of(scratch, int(at.at)).stat().st_mode) == 0o600


def test_no_copy_is_made_while_nothing_changes(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    put(backend, "k")
    store = open_scanner(scratch=tmp_path)
    at = store.position()
    path_of(tmp_path, int(at.at)).unlink()
    assert store.position() == at
    assert not path_of(tmp_path, int(at.at)).exists()
    put(backend, "l")
    assert names_of(store) == [b"n/k", b"n/l"]


@contextmanager
def limited_files() -> Iterator[None]:
    """Let this process, and those that it starts, write no file of more than 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_copy_that_cannot_be_written_is_named(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    """It may be on another disk than the database, of which nothing is wrong."""
    put(backend, "k", os.urandom(200_000))
    store = open_scanner(scratch=tmp_path)
    with limited_files(), pytest.raises(StoreError, match=rf"^{tmp_path}/draft"):
        store.position()
    assert not [*tmp_path.glob("draft-*")]
    assert names_of(store) == [b"n/k"]


def test_without_a_directory_the_copy_ends_with_the_scanner(
    backend: EmbeddedBackend, open_scanner: OpenScanner, monkeypatch: Any, tmp_path: Path
) -> None:
    put(backend, "k")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = open_scanner()
    first = store.position()
    put(backend, "l")
    assert len(names_of(store)) == 2
    with pytest.raises(PositionLostError):
        names_of(store, first)
    (private,) = (entry for entry in tmp_path.iterdir() if entry.name.startswith("kip30-scan"))
    assert len(list(private.iterdir())) == 1
    store.close()
    assert not private.exists()


def test_a_forked_child_neither_reads_nor_deletes_the_copy(
    backend: EmbeddedBackend, open_scanner: OpenScanner
) -> None:
    put(backend, "k")
    store = open_scanner()
    at = store.position()
    assert in_forked_child(store.position) == "LifecycleError"
    assert in_forked_child(store.close) == "None"
    assert names_of(store, at) == [b"n/k"]


def test_a_scanner_that_is_dropped_leaves_no_copy(
    backend: EmbeddedBackend, directory: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    put(backend, "k")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = {"plugin.backend": "embedded", "plugin.embedded.directory": str(directory)}
    store = scanner(config)
    store.position()
    before = [entry for entry in tmp_path.iterdir() if entry.name.startswith("kip30-scan")]
    assert len(before) == 1
    del store
    gc.collect()
    assert not before[0].exists()


def test_a_removed_copy_is_a_lost_position(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    put(backend, "k")
    store = open_scanner(scratch=tmp_path)
    at = store.position()
    (span,) = store.plan(at, ALL)
    path_of(tmp_path, int(at.at)).unlink()
    with pytest.raises(PositionLostError, match="no copy of revision"):
        list(store.scan(span, at))


def test_another_database_at_the_same_path_is_another_store(
    open_backend: Any, open_scanner: OpenScanner, directory: Path, tmp_path: Path
) -> None:
    backend = open_backend()
    put(backend, "k")
    at = open_scanner(scratch=tmp_path).position()
    backend.close()
    directory.rename(directory.with_name("before"))
    put(open_backend(), "k")
    with pytest.raises(PositionLostError, match="of another database"):
        names_of(open_scanner(scratch=tmp_path), at)


def test_changes_are_never_those_of_a_database_that_was_made_again(
    open_backend: Any, open_scanner: OpenScanner, directory: Path, tmp_path: Path
) -> None:
    """Its file may have the number of the removed one, and more revisions than that had."""
    backend = open_backend()
    put(backend, "k")
    before = open_scanner(scratch=tmp_path).position()
    backend.close()
    shutil.rmtree(directory)
    again = open_backend()
    for number in range(10):
        put(again, f"l{number}")
    store = open_scanner(scratch=tmp_path)
    now = store.position()
    file, _, identity = now.store.rpartition("-")
    assert not before.store.endswith(identity)
    same_file = Position(f"{file}-{before.store.rpartition('-')[2]}", before.at)
    with pytest.raises(PositionLostError, match="created again"):
        list(store.changes(same_file, now))


def test_a_database_of_an_older_kip30_has_positions_too(
    open_backend: Any, open_scanner: OpenScanner, directory: Path, tmp_path: Path
) -> None:
    backend = open_backend()
    put(backend, "k")
    backend.close()
    with closing(sqlite3.connect(directory / "kip30.db")) as connection:
        connection.execute("DROP TABLE identity")
    store = open_scanner(scratch=tmp_path)
    before = store.position()
    put(open_backend(), "l")
    assert names_of(store) == [b"n/k", b"n/l"]
    assert len(list(store.changes(before, store.position()))) == 1


def test_a_log_that_sqlite_removes_meanwhile_is_a_change(
    backend: EmbeddedBackend, directory: Path, tmp_path: Path
) -> None:
    put(backend, "k")
    file = tmp_path / "kip30.db"
    file.write_bytes((directory / "kip30.db").read_bytes())
    with removed_again_and_again(tmp_path / "kip30.db-wal"):
        seen = [scanning._signature(file) for _ in range(20_000)]
    assert any(one != seen[0] for one in seen)


def test_a_database_that_is_removed_is_an_error(
    open_backend: Any, open_scanner: OpenScanner, directory: Path, tmp_path: Path
) -> None:
    backend = open_backend()
    put(backend, "k")
    store = open_scanner(scratch=tmp_path)
    at = store.position()
    backend.close()
    (directory / "kip30.db").unlink()
    with pytest.raises(StoreError):
        store.position()
    with pytest.raises(StoreError, match="was removed"):
        names_of(store, at)


def test_a_copy_that_cannot_be_written_is_an_error(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    put(backend, "k")
    scratch = tmp_path / "missing"
    with pytest.raises(StoreError):
        open_scanner(scratch=scratch).position()
    assert not scratch.exists()


def test_a_transaction_of_writers_is_there_whole_or_not_at_all(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        put(backend, name, b"0")
    done = threading.Event()

    def write_both_the_same() -> None:
        for number in iter(lambda: os.urandom(4).hex().encode(), None):
            writes = [
                Write(Key("n", name), number.decode(), number, Condition.ANY) for name in ("a", "b")
            ]
            for future in backend.storage.write_many(writes):
                future.result()
            if done.is_set():
                return

    writer = threading.Thread(target=write_both_the_same)
    writer.start()
    try:
        store = open_scanner(scratch=tmp_path)
        seen = [[row.data for row in rows_of(store)] for _ in range(20)]
    finally:
        done.set()
        writer.join()
    assert all(one == other for one, other in seen)
    assert len({one for one, _ in seen}) > 1


def test_changes_that_are_forgotten_are_a_lost_position(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    put(backend, "k")
    store = open_scanner(scratch=tmp_path)
    before = store.position()
    for start in range(0, 6_000, 100):
        names = [str(number) for number in range(start, start + 100)]
        writes = [Write(Key("n", name), "", b"v", Condition.ANY) for name in names]
        for future in backend.storage.write_many(writes):
            future.result()
    after = store.position()
    with pytest.raises(PositionLostError, match="no longer has"):
        list(store.changes(before, after))
    with pytest.raises(PositionLostError):
        list(store.changes(after, before))


def test_changes_of_another_namespace_are_not_shown(
    open_backend: Any, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    mine, other = open_backend(), open_backend(namespace="other")
    put(mine, "k")
    store = open_scanner(scratch=tmp_path)
    before = store.position()
    put(other, "foreign")
    put(mine, "mine")
    changes = [one for batch in store.changes(before, store.position()) for one in batch]
    assert [change.key for change in changes] == [b"n/mine"]
    assert isinstance(changes[0], Change)


def test_forks_are_held_off_while_a_copy_is_checked(
    backend: EmbeddedBackend,
    open_scanner: OpenScanner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(backend, "k")
    inside: list[bool] = []
    monkeypatch.setattr(
        scanning, "check_marks", lambda _copy, _file: inside.append(held_off.is_inside())
    )
    open_scanner(scratch=tmp_path).position()
    assert inside == [True]


def test_forks_are_held_off_while_sqlite_reads_a_copy(
    backend: EmbeddedBackend,
    open_scanner: OpenScanner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(300):
        put(backend, f"{number}")
    store = open_scanner(scratch=tmp_path)
    claims = open_scanner(scratch=tmp_path, layout=Layout.CLAIMS)
    before = store.position()
    put(backend, "new")
    at = store.position()
    inside: list[bool] = []

    def note() -> None:
        inside.append(held_off.is_inside())

    def open_watched(copy: Path) -> sqlite3.Connection:
        note()
        connection = open_copy(copy)
        connection.set_progress_handler(note, 1)  # at each step of each statement
        return connection

    monkeypatch.setattr(scanning, "open_copy", open_watched)
    between: list[bool] = []
    for span in store.plan(at, 100):
        between.extend(held_off.is_inside() for _ in store.scan(span, at))
    rows_of(claims, at)
    assert [change for part in store.changes(before, at) for change in part]
    assert len(inside) > 300
    assert all(inside)
    assert len(between) > 2
    assert not any(between)


def test_a_fork_during_a_copy_harms_no_child(
    backend: EmbeddedBackend, open_scanner: OpenScanner, directory: Path, tmp_path: Path
) -> None:
    put(backend, "large", b"v" * 200_000)
    store = open_scanner(scratch=tmp_path)
    done = threading.Event()

    def copy_again_and_again() -> None:
        while not done.is_set():
            put(backend, "k", os.urandom(8))
            store.position()

    copier = threading.Thread(target=copy_again_and_again)
    copier.start()
    try:
        for _ in range(20):
            assert in_forked_child(lambda: _opens_its_own(directory)) == "None"
    finally:
        done.set()
        copier.join()


def _opens_its_own(directory: Path) -> None:
    context = Context(
        clock=SystemClock(),
        namespace="root",
        session_timeout_seconds=60,
        operation_timeout_seconds=50,
        connect_timeout_seconds=50,
        margin_seconds=1,
    )
    with closing(EmbeddedBackend(context, EmbeddedSettings(directory=directory))) as own:
        put(own, "child")


def test_a_span_names_its_keys_and_no_others(
    backend: EmbeddedBackend, open_scanner: OpenScanner, tmp_path: Path
) -> None:
    for number in range(10):
        put(backend, f"{number}")
    store = open_scanner(scratch=tmp_path)
    at = store.position()
    spans = list(store.plan(at, 4))
    assert [span.rows for span in spans] == [4, 4, 2]
    assert [len(next(iter(store.scan(span, at))).rows) for span in spans] == [4, 4, 2]
    assert all(isinstance(span, Span) for span in spans)


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("UPDATE member SET data = 5", {"member"}),
        ("UPDATE member SET scope = 5", {"member"}),
        ("UPDATE member SET id = x'ff'", {"member"}),
        ("UPDATE service SET data = 5", {"leader"}),
        ("UPDATE service SET candidate = 'text'", {"leader"}),
        ("UPDATE service SET epoch = 'text'", {"leader", "epoch"}),
        ("UPDATE service SET scope = 5", {"leader", "epoch"}),
    ],
)
def test_a_claim_that_kip30_did_not_write_is_rejected_and_the_others_are_read(
    backend: EmbeddedBackend,
    open_scanner: OpenScanner,
    directory: Path,
    statement: str,
    missing: set[str],
) -> None:
    backend.membership.claim("g", "m", "nonce", b"d").result()
    backend.election.claim("s", "c", "nonce", b"d").result()
    with closing(sqlite3.connect(directory / "kip30.db")) as database, database:
        assert database.execute(statement).rowcount == 1
    store = open_scanner(layout=Layout.CLAIMS)
    at = store.position()
    pages = [page for span in store.plan(at, ALL) for page in store.scan(span, at)]
    found = {row.key.decode().partition("/")[0] for page in pages for row in page.rows}
    assert found == {"member", "leader", "epoch"} - missing
    assert len([one for page in pages for one in page.rejected]) == 1
