"""Everything that is opened is given back."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Condition, Kind, Target, Write
from kip30.errors import ClosedError, StoreError, UnavailableError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, fork_safety
from kip30_backends.embedded.connections import Connections

KEY = Key("", "key")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def held(directory: Path) -> tuple[object, ...]:
    stores = len(fork_safety._process.stores)
    return threading.active_count(), descriptors(), files(directory), stores


def test_two_hundred_cycles_leave_everything_as_it_was(open_backend: Any, directory: Path) -> None:
    def cycle() -> None:
        backend = open_backend()
        backend.observe.watch(Target(Kind.SERVICE, "s"), lambda _: None)
        backend.storage.write(Write(KEY, "n", b"1", Condition.ANY)).result()
        backend.membership.claim("g", "m", "n", b"").result()
        backend.election.claim("s", "c", "n", b"").result()
        backend.close()

    cycle()
    before = held(directory)
    for _ in range(200):
        cycle()
    after = held(directory)
    assert after == before
    assert not (directory / "kip30.db-wal").exists()


def test_connections_of_ended_threads_are_closed(open_backend: Any) -> None:
    backend = open_backend()
    before = descriptors()
    for _ in range(50):
        in_thread(lambda: backend.storage.read([KEY]).result())
    assert descriptors() <= before + 3


def test_an_error_of_an_ended_thread_keeps_no_connection_open(backend: EmbeddedBackend) -> None:
    database = backend._resources.database
    connections: list[sqlite3.Connection] = []
    errors: list[BaseException] = []

    def fail(_: object) -> None:
        connection = database.connections.slot().connection
        assert connection is not None
        connections.append(connection)
        raise OSError

    def work() -> None:
        try:
            database.write(fail)
        except OSError as error:
            errors.append(error)

    in_thread(work)
    assert errors[0].__traceback__ is not None
    assert is_closed(connections[0])


def test_a_connection_opened_while_the_backend_closes_is_closed(
    backend: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = backend._resources.connections
    connect = connections.connect
    connected: list[sqlite3.Connection] = []
    errors: list[BaseException | None] = []
    closing_thread = threading.Thread(target=backend.close)

    def connect_late() -> sqlite3.Connection:
        connected.append(connect())
        closing_thread.start()
        while connections._refusal is None:
            pass
        return connected[0]

    monkeypatch.setattr(connections, "connect", connect_late)
    in_thread(lambda: errors.append(backend.storage.list_names("", "", 1).exception()))
    closing_thread.join(10)
    assert not closing_thread.is_alive()
    assert errors == [None]  # the attempt under way is waited for
    assert is_closed(connected[0])
    with pytest.raises(ClosedError):
        connections.slot()


def test_a_connection_that_cannot_be_set_up_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"this is no database\n" * 1000)
    before = descriptors()
    connections = Connections(file, synchronous="NORMAL")
    with pytest.raises(sqlite3.DatabaseError, match="not a database") as refused:
        connections.connect()
    connections.close()
    assert refused.value.__traceback__ is not None
    assert descriptors() == before


def test_a_missing_doorbell_leaves_nothing_open(
    open_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = len(fork_safety._process.stores)
    monkeypatch.setattr("kip30_backends.embedded.database_file.SIGNAL_FILE", "sessions")
    before = descriptors()
    with pytest.raises(StoreError):
        open_backend()
    assert (descriptors(), len(fork_safety._process.stores)) == (before, stores)


def test_a_refused_file_leaves_nothing_open(open_backend: Any, directory: Path) -> None:
    directory.mkdir()
    (directory / "kip30.db").write_bytes(b"mine" * 1000)
    before = threading.active_count(), descriptors()
    for _ in range(20):
        with pytest.raises(StoreError):
            open_backend()
    assert (threading.active_count(), descriptors()) == before


def test_a_locked_database_leaves_nothing_open(open_backend: Any, directory: Path) -> None:
    open_backend().close()
    with closing(sqlite3.connect(directory / "kip30.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = []
        for _ in range(5):
            with pytest.raises(UnavailableError):
                open_backend(namespace="new", operation=0.05)
            found.append((threading.active_count(), descriptors()))
    # SQLite keeps a descriptor or two for reuse while this process holds locks by another one.
    assert found[1:] == [found[1]] * 4


def test_close_may_be_called_by_many_while_others_work(open_backend: Any) -> None:
    for _ in range(10):
        backend = open_backend()
        backend.election.claim("s", "c", "n", b"").result()
        go = threading.Event()

        def work(backend: Any = backend, go: threading.Event = go) -> None:
            go.wait()
            while backend.storage.read([KEY]).exception() is None:
                backend.storage.write(Write(KEY, "n", b"1", Condition.ANY)).exception()

        def close(backend: Any = backend, go: threading.Event = go) -> None:
            go.wait()
            backend.close()

        threads = [threading.Thread(target=job) for job in (work, work, close, close)]
        for thread in threads:
            thread.start()
        go.set()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
