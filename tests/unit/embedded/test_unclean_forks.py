"""Children that inherited SQLite state all the same: they open no store."""

import gc
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30_backends.embedded import EmbeddedBackend, fork_safety
from kip30_backends.embedded.liveness_locks import held_off

from .forking import (
    FORKS_IN_C,
    KEY,
    database_descriptors,
    fork_in_c,
    is_unclean,
    put,
    repeating,
    works,
)

# Python 3.12 and newer warn of forks with threads, which is what is tried here.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def test_a_fork_within_a_transaction_makes_the_child_unclean_at_once(
    open_backend: Any, in_child: Any, took: Any
) -> None:
    backend = open_backend()
    statuses: list[int] = []

    def fork_inside(_: object) -> None:
        statuses.append(in_child(lambda: is_unclean(open_backend)))

    with repeating(lambda: put(backend)):
        assert took(lambda: backend._resources.database.write(fork_inside)) < 4
    assert statuses == [0]
    put(backend)


def test_a_child_that_returns_into_a_transaction_cannot_commit_it(open_backend: Any) -> None:
    backend: EmbeddedBackend = open_backend()
    put(backend)
    read_end, write_end = os.pipe()
    parent = os.getpid()

    def fork_inside(transaction: Any) -> None:
        transaction.execute("UPDATE kv SET data = ?", (b"by the parent",))
        if os.fork() == 0:
            transaction.execute("UPDATE kv SET data = ?", (b"by the child",))

    try:
        backend._resources.database.write(fork_inside)
    except BaseException as error:  # noqa: BLE001  the parent judges by what is said
        os.write(write_end, repr(error).encode())
    if os.getpid() != parent:
        os._exit(0)
    os.wait()
    assert b"LifecycleError('opened before a fork" in os.read(read_end, 1000)
    (entry,) = backend.storage.read([KEY]).result()
    assert entry is not None
    assert entry.data == b"by the parent"
    for descriptor in (read_end, write_end):
        os.close(descriptor)


def test_a_fork_waits_for_a_transaction_and_not_for_ever(
    open_backend: Any, in_child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: EmbeddedBackend = open_backend()
    put(backend)
    begun, go_on = threading.Event(), threading.Event()

    def linger(_: object) -> None:
        begun.set()
        go_on.wait(60)

    writer = threading.Thread(target=backend._resources.database.write, args=(linger,))
    writer.start()
    assert begun.wait(20)
    monkeypatch.setattr(fork_safety, "_LONGEST_SECONDS", 0.2)
    assert in_child(lambda: is_unclean(open_backend)) == 0
    assert in_child(lambda: in_child(lambda: is_unclean(open_backend)) == 0) == 0
    monkeypatch.setattr(fork_safety, "_LONGEST_SECONDS", 60.0)
    threading.Timer(0.1, go_on.set).start()
    assert in_child(lambda: works(open_backend)) == 0
    writer.join()


def test_a_fork_waits_for_a_connection_that_belongs_to_no_thread(
    open_backend: Any, in_child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(open_backend())
    with held_off.lock:
        assert in_child(lambda: is_unclean(open_backend)) == 0
    inside, go_on = threading.Event(), threading.Event()

    def stay() -> None:
        with held_off.lock:
            inside.set()
            go_on.wait(60)

    stayer = threading.Thread(target=stay)
    stayer.start()
    assert inside.wait(20)
    monkeypatch.setattr(fork_safety, "_LONGEST_SECONDS", 0.2)
    assert in_child(lambda: is_unclean(open_backend)) == 0
    go_on.set()
    stayer.join()
    assert in_child(lambda: works(open_backend)) == 0


def test_a_fork_by_a_signal_handler_within_a_fork_makes_its_child_unclean(
    open_backend: Any, in_child: Any
) -> None:
    backend = open_backend()
    put(backend)
    # Not by two real forks: Python's own hooks would wait for the outer one.
    fork_safety._before()
    try:
        assert in_child(lambda: is_unclean(open_backend)) == 0
    finally:
        fork_safety._in_parent()
    assert in_child(lambda: works(open_backend)) == 0
    put(backend)


@pytest.mark.parametrize("fork", FORKS_IN_C)
def test_a_fork_without_hooks_makes_the_child_unclean(
    open_backend: Any, in_child: Any, fork: Callable[[], int]
) -> None:
    # Without threads: those that Python does not know to be gone may stop the child for ever.
    backend: EmbeddedBackend = open_backend()
    put(backend)
    dropped = [backend]

    def child() -> bool:
        unclean = is_unclean(open_backend)
        dropped[0].close()
        dropped.clear()
        return unclean and in_child(lambda: is_unclean(open_backend)) == 0

    assert in_child(child, fork) == 0
    put(backend)


@pytest.mark.parametrize("fork", FORKS_IN_C)
def test_a_fork_without_hooks_is_harmless_once_everything_is_closed(
    open_backend: Any, in_child: Any, fork: Callable[[], int]
) -> None:
    def closes_and_forks() -> bool:
        backend = open_backend()
        put(backend)
        backend.close()
        return bool(in_child(lambda: works(open_backend), fork) == 0)

    # In a child that has no other thread. One that waits for the interpreter's lock at a fork
    # without hooks, such as a thread of pytest-xdist, leaves that lock unusable.
    assert in_child(closes_and_forks) == 0


def test_a_fork_without_hooks_while_a_store_is_being_opened_makes_the_child_unclean(
    open_backend: Any, in_child: Any
) -> None:
    with held_off.lock:
        assert in_child(lambda: is_unclean(open_backend), fork_in_c) == 0


def test_an_unclean_child_never_closes_a_connection(
    open_backend: Any, in_child: Any, directory: Path
) -> None:
    """Closing one could copy back or delete a log that the parent, or others by then, use."""
    backend: EmbeddedBackend = open_backend()
    put(backend)
    before = database_descriptors(directory)
    assert before >= 3

    def drop_everything() -> bool:
        unclean = is_unclean(open_backend)
        backend._drop.detach()
        backend.__dict__.clear()
        gc.collect()
        return unclean and database_descriptors(directory) == before

    for fork in FORKS_IN_C:
        assert in_child(drop_everything, fork) == 0


def test_a_connection_of_the_users_own_makes_the_child_unclean(
    open_backend: Any, in_child: Any, directory: Path
) -> None:
    backend = open_backend()
    put(backend)
    with closing(sqlite3.connect(directory / "kip30.db")) as theirs:
        theirs.execute("SELECT * FROM kv").fetchall()
        assert in_child(lambda: is_unclean(open_backend)) == 0
    assert in_child(lambda: works(open_backend)) == 0
