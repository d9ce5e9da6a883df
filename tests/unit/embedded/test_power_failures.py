"""Versions that a power failure undoes are never given out again for something else.

The database after the failure is a copy of what had reached the disk: with
``synchronous = normal`` the last commits have not.
"""

import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Claim, Condition, Fence, Kind, Snapshot, Target, Version, Write
from kip30.errors import FencedError, VersionConflictError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, database_file
from kip30_backends.embedded.database import Database

KEY = Key("", "key")


class Machine:
    """Directories that a power failure takes back to what was synchronised."""

    def __init__(self, open_backend: Any, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self._open = open_backend
        self._directory = directory
        self._patch = patch
        self._starts = 0
        self._copy = directory
        self._kept: list[EmbeddedBackend] = []

    def start(self) -> EmbeddedBackend:
        self._starts += 1
        self._patch.setattr(database_file, "boot_id", lambda: f"start {self._starts}")
        backend: EmbeddedBackend = self._open(directory=self._directory, session=60)
        return backend

    def synchronise(self) -> None:
        """Note what is on the disk now."""
        self._copy = self._directory.with_name(f"copy-{self._starts}")
        shutil.copytree(self._directory, self._copy)

    def fail(self) -> EmbeddedBackend:
        """Lose the power; start again with what was on the disk."""
        self._directory = self._copy
        return self.start()


@pytest.fixture
def machine(open_backend: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(open_backend, directory, monkeypatch)


def put(backend: EmbeddedBackend, data: bytes) -> Version:
    return backend.storage.write(Write(KEY, "n", data, Condition.ANY)).result()


def test_no_version_comes_twice(machine: Machine) -> None:
    backend = machine.start()
    versions: list[Version] = []
    for _ in range(4):
        put(backend, b"kept")
        machine.synchronise()
        versions += [put(backend, b"lost") for _ in range(20)]
        backend = machine.fail()
        assert put(backend, b"new") > versions[-1]
        write = Write(KEY, "n", b"on what was lost", versions[-1])
        with pytest.raises(VersionConflictError):
            backend.storage.write(write).result()


def test_no_member_is_taken_for_the_one_that_was_lost(machine: Machine) -> None:
    backend = machine.start()
    machine.synchronise()
    lost = backend.membership.claim("g", "m", "n", b"").result()
    backend = machine.fail()
    claim = backend.membership.claim("g", "m", "n", b"").result()
    assert claim.entry.version > lost.entry.version
    assert claim.order > lost.order


def test_skipped_revisions_are_synced_before_any_later_commit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.start().close()
    commits: list[tuple[int, int]] = []
    real = Database._commit

    def commit(self: Database, connection: sqlite3.Connection) -> None:
        level = connection.execute("PRAGMA synchronous").fetchone()[0]
        commits.append((connection.execute("SELECT max(rev) FROM change").fetchone()[0], level))
        real(self, connection)

    monkeypatch.setattr(Database, "_commit", commit)
    put(machine.start(), b"")
    first = next(commit for commit in commits if commit[0] > database_file.SKIPPED)
    assert first == (database_file.SKIPPED + 1, 2), "synchronous is FULL"


def test_revisions_are_left_out_once_for_each_start(machine: Machine) -> None:
    backend = machine.start()
    first = put(backend, b"")
    assert first.major < 100
    machine._starts -= 1
    assert put(machine.start(), b"").major < 100
    again = machine.start()
    assert database_file.SKIPPED < put(again, b"").major < database_file.SKIPPED + 100
    assert put(backend, b"").major < database_file.SKIPPED + 100


def test_a_database_of_before_is_taken_over(machine: Machine, directory: Path) -> None:
    put(machine.start(), b"")
    with closing(sqlite3.connect(directory / "kip30.db")) as connection, connection:
        connection.execute("DROP TABLE boot")
    machine._starts -= 1
    assert put(machine.start(), b"").major > database_file.SKIPPED


def test_without_a_boot_id_each_startup_skips_revisions(
    monkeypatch: pytest.MonkeyPatch, open_backend: Any
) -> None:
    monkeypatch.setattr(database_file, "boot_id", lambda: "")
    versions = [put(open_backend(), b"").major for _ in range(3)]
    steps = [later - earlier for earlier, later in pairwise(versions)]
    assert all(step >= database_file.SKIPPED for step in steps)


def test_listeners_and_the_change_log_go_on_over_the_gap(machine: Machine, eventually: Any) -> None:
    backend = machine.start()
    seen: list[Snapshot] = []
    backend.observe.watch(Target(Kind.NAMESPACE, ""), seen.append)
    put(backend, b"1")
    eventually(lambda: seen and "key" in seen[-1].entries)
    other = machine.start()  # as a container that has a boot id of its own
    write = Write(Key("", "other"), "n", b"", Condition.ANY)
    other.storage.write(write).result()
    eventually(lambda: "other" in seen[-1].entries)
    assert seen[-1].delta is not None


def test_an_epoch_is_never_undone(machine: Machine) -> None:
    """A claim synchronises all that was committed before it."""
    backend = machine.start()
    claim = backend.election.claim("s", "c", "n", b"").result()
    machine.synchronise()
    put(backend, b"lost")
    assert isinstance(claim, Claim)
    backend = machine.fail()
    fenced = Write(KEY, "n", b"", Condition.ANY, Fence("s", claim.entry.version.major))
    with pytest.raises(FencedError):
        backend.storage.write(fenced).result()
    again = backend.election.claim("s", "c", "m", b"").result()
    assert isinstance(again, Claim)
    assert again.entry.version.major == claim.entry.version.major + 1
