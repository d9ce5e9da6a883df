"""Files that may stand in place of the database, and the layout of the state directory."""

import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Backend
from kip30.driver.records import Claim, Condition, Kind, Target, Write
from kip30.errors import ConfigError, Kip30Error, StoreError, UnavailableError
from kip30.names import Key
from kip30_backends.embedded.errors import translate

KEY = Key("", "key")


def made(open_backend: Any, directory: Path) -> Path:
    backend = open_backend()
    backend.storage.write(Write(KEY, "n", b"value", Condition.ANY)).result()
    backend.close()
    return directory / "kip30.db"


def with_bytes(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def empty(file: Path) -> None:
    with_bytes(file, b"")


def text(file: Path) -> None:
    with_bytes(file, b"this is no database\n" * 1000)


def short_text(file: Path) -> None:
    with_bytes(file, b"x")


def header_alone(file: Path) -> None:
    with_bytes(file, file.read_bytes()[:100])


def half(file: Path) -> None:
    with_bytes(file, file.read_bytes()[: file.stat().st_size // 2])


def one_page_short(file: Path) -> None:
    with_bytes(file, file.read_bytes()[:-4096])


def foreign(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE theirs (data)")
        connection.commit()


def foreign_wal(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE theirs (data)")
        connection.commit()


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (empty, "is cut short"),
        (text, "not a SQLite database"),
        (short_text, "is cut short"),
        (header_alone, "is cut short"),
        (half, "damaged"),
        (one_page_short, "damaged"),
        (foreign, "not made by kip30"),
        (foreign_wal, "not made by kip30"),
        (newer, "newer kip30"),
    ],
)
def test_a_bad_file_is_refused_and_stays_as_it_is(
    open_backend: Any, directory: Path, spoil: Callable[[Path], None], words: str
) -> None:
    file = made(open_backend, directory)
    spoil(file)
    before = file.read_bytes()
    with pytest.raises(StoreError, match=words) as refused:
        open_backend()
    assert str(file) in str(refused.value)
    assert file.read_bytes() == before


def test_a_directory_in_place_of_the_database_is_refused(
    open_backend: Any, directory: Path
) -> None:
    (directory / "kip30.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="not a file"):
        open_backend()


def test_a_file_in_place_of_the_directory_is_refused(open_backend: Any, directory: Path) -> None:
    directory.write_bytes(b"mine")
    with pytest.raises(StoreError, match="not a directory"):
        open_backend()
    assert directory.read_bytes() == b"mine"


def test_a_missing_parent_is_refused_and_not_made(open_backend: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is missing: make it first"):
        open_backend(directory=tmp_path / "no" / "state")
    assert not (tmp_path / "no").exists()


def test_the_default_directory_is_made_with_its_parents(
    open_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a" / "b"))
    from kip30_backends.embedded import EmbeddedSettings  # noqa: PLC0415  after the variable

    assert EmbeddedSettings().directory == tmp_path / "a" / "b" / "kip30"
    open_backend(directory=EmbeddedSettings().directory)
    assert (tmp_path / "a" / "b" / "kip30" / "kip30.db").exists()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(
    open_backend: Any, directory: Path, umask: Callable[[int], Any], mask: int
) -> None:
    with umask(mask):
        backend = open_backend()
        backend.membership.claim("g", "m", "n", b"").result()
        backend.storage.write(Write(KEY, "n", b"v", Condition.ANY)).result()
        found = {path: path.stat().st_mode for path in [directory, *directory.rglob("*")]}
    assert len(found) >= 8
    for path, mode in found.items():
        assert stat.S_IMODE(mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_is_there_keeps_its_mode(open_backend: Any, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o750)
    open_backend()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750


def test_a_creation_that_broke_off_is_begun_again(open_backend: Any, directory: Path) -> None:
    directory.mkdir()
    for name in ("kip30.new", "kip30.new-wal", "kip30.new-journal"):
        (directory / name).write_bytes(b"half done")
    backend = open_backend()
    assert backend.storage.read([KEY]).result() == [None]
    assert not list(directory.glob("kip30.new*"))


def test_many_create_one_database(directory: Path, start_child: Any) -> None:
    children = [start_child("auto", "3", "write", f"key{number}") for number in range(8)]
    assert [child.line() for child in children] == ["wrote 1"] * 8
    with closing(sqlite3.connect(directory / "kip30.db")) as connection:
        assert connection.execute("SELECT count(*) FROM kv").fetchone() == (8,)


def test_an_unwritable_database_is_a_store_error_and_stays_as_it_is(
    open_backend: Any, directory: Path
) -> None:
    file = made(open_backend, directory)
    before = file.read_bytes()
    said = as_nobody(directory)
    assert re.search(r"StoreError: .*(check|denied)", said), said
    assert file.read_bytes() == before


def as_nobody(directory: Path) -> str:
    """Return the error of opening *directory*, by a user who may not write it."""
    if os.getuid() != 0:
        directory.chmod(0o500)
    code = (
        "import os, sys\n"
        "from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings\n"
        "from kip30.driver.clock import SystemClock\n"
        "from kip30.driver import Context\n"
        "from pathlib import Path\n"
        "os.getuid() or os.setuid(65534)\n"
        "context = Context(clock=SystemClock(), namespace='r', session_timeout_seconds=3,"
        " operation_timeout_seconds=1, connect_timeout_seconds=1, margin_seconds=0.1)\n"
        "try:\n"
        "    EmbeddedBackend(context, EmbeddedSettings(directory=Path(sys.argv[1])))\n"
        "except Exception as error:\n"
        "    print(type(error).__name__ + ':', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_locked_by_another_program_is_unavailable_and_nothing_is_done(
    open_backend: Any, directory: Path
) -> None:
    backend: Backend = open_backend(operation=0.2)
    with closing(sqlite3.connect(directory / "kip30.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        failed = backend.storage.write(Write(KEY, "n", b"v", Condition.ANY)).exception()
        assert isinstance(failed, UnavailableError)
        assert f"`fuser {directory / 'kip30.db'}`" in str(failed)
        assert backend.storage.read([KEY]).result() == [None]
        with pytest.raises(UnavailableError, match=r"`fuser .*kip30\.db`"):
            open_backend(namespace="another", operation=0.2)
        other.execute("ROLLBACK")
    backend.storage.write(Write(KEY, "n", b"v", Condition.ABSENT)).result()


def test_a_database_replaced_under_way_is_not_written(open_backend: Any, directory: Path) -> None:
    backend = open_backend()
    (directory / "kip30.db").rename(directory / "old.db")
    failed = backend.storage.write(Write(KEY, "n", b"v", Condition.ANY)).exception()
    assert isinstance(failed, StoreError)
    open_backend()
    failed = backend.storage.write(Write(KEY, "n", b"v", Condition.ANY)).exception()
    assert isinstance(failed, StoreError)
    assert "replaced" in str(failed)


def replaced(directory: Path) -> None:
    """Restore the database from a copy, as an operator may do."""
    away = directory / "away"
    away.mkdir()
    for file in directory.glob("kip30.db*"):
        file.rename(away / file.name)


def test_a_database_replaced_under_way_is_not_read(
    open_backend: Any, directory: Path, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backend = open_backend()
    backend.storage.write(Write(KEY, "n", b"old", Condition.ANY)).result()
    replaced(directory)
    other = open_backend()
    other.storage.write(Write(KEY, "n", b"new", Condition.ANY)).result()
    reads: list[Callable[[], Any]] = [
        lambda: backend.storage.read([KEY]),
        lambda: backend.storage.read([KEY, KEY]),
        lambda: backend.storage.list_names("", "", 1),
        lambda: backend.observe.snapshot(Target(Kind.GROUP, "g")),
    ]
    for read in reads:
        eventually(lambda read=read: read().exception() is not None)
        assert isinstance(read().exception(), StoreError)
        assert "was replaced or removed while it was open: start again" in str(read().exception())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_thread_that_comes_later_does_not_read_the_new_file(
    open_backend: Any, directory: Path
) -> None:
    backend = open_backend()
    replaced(directory)
    open_backend().storage.write(Write(KEY, "n", b"new", Condition.ANY)).result()
    errors: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: errors.append(backend.storage.read([KEY]).exception()))
    thread.start()
    thread.join()
    assert isinstance(errors[0], StoreError)


def test_a_session_ends_when_the_database_was_replaced(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    backend = open_backend(session=60)
    claim = backend.election.claim("s", "me", "n", b"").result()
    assert isinstance(claim, Claim)
    replaced(directory)
    eventually(lambda: not claim.lease.is_valid())
    assert "was replaced or removed" in (claim.lease.end_reason or "")
    assert isinstance(backend.election.claim("s", "me", "m", b"").exception(), StoreError)


def test_listeners_of_a_replaced_database_do_not_end_without_a_word(
    open_backend: Any, directory: Path, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backend = open_backend()
    seen: list[Any] = []
    backend.observe.watch(Target(Kind.VALUE, "", "key"), seen.append)
    eventually(lambda: seen)
    replaced(directory)
    eventually(lambda: "was replaced or removed while it was open" in caplog.text)


def read_only_folders() -> list[Path]:
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    folders = [Path(line[1]) for line in lines if "ro" in line[3].split(",")]
    return [folder for folder in folders if folder.is_dir()]


def test_the_error_names_a_read_only_file_system() -> None:
    folders = read_only_folders()
    if not folders:
        pytest.skip("nothing is mounted read-only here")
    file = folders[0] / "kip30.db"
    with pytest.raises(sqlite3.OperationalError) as failed, closing(sqlite3.connect(file)) as it:
        it.execute("CREATE TABLE t (x)")
    told = translate(failed.value, file)
    assert isinstance(told, StoreError)
    assert str(told).startswith(f"{folders[0]} is on a read-only file system (")


def test_a_full_disk_is_a_store_error_and_nothing_is_done(backend: Any) -> None:
    slot = backend._resources.connections.slot()
    pages = slot.connection.execute("PRAGMA page_count").fetchone()[0]
    slot.connection.execute(f"PRAGMA max_page_count = {pages}")
    failed = backend.storage.write(Write(KEY, "n", b"x" * 100_000, Condition.ANY)).exception()
    assert isinstance(failed, StoreError)
    assert "disk is full" in str(failed)
    assert backend.storage.read([KEY]).result() == [None]
    backend.storage.write(Write(KEY, "n", b"small", Condition.ANY)).result()


def test_an_error_keeps_its_cause(open_backend: Any, directory: Path) -> None:
    text(made(open_backend, directory))
    with pytest.raises(Kip30Error) as refused:
        open_backend()
    assert isinstance(refused.value.__cause__, sqlite3.DatabaseError)


@pytest.fixture
def a_poor_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fcntl.F_OFD_SETLK")
    monkeypatch.setattr("kip30_backends.embedded.change_signal.is_available", lambda: False)


@pytest.mark.usefixtures("a_poor_system")
@pytest.mark.parametrize(("setting", "choice"), [("liveness", "ofd"), ("notify", "inotify")])
def test_a_choice_that_the_system_lacks_is_refused_before_anything_is_made(
    open_backend: Any, directory: Path, setting: str, choice: str
) -> None:
    with pytest.raises(ConfigError, match=rf"plugin\.embedded\.{setting} = {choice}"):
        open_backend(**{setting: choice})
    assert not directory.exists()


@pytest.mark.usefixtures("a_poor_system")
def test_auto_takes_what_the_system_has(open_backend: Any) -> None:
    described = open_backend().describe()
    assert (described["liveness"], described["notify"]) == ("record", "poll")
