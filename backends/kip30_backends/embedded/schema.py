"""The database file: making it whole or not at all, and refusing what is not ours untouched."""

import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from kip30.errors import StoreError
from kip30_backends.embedded import boots
from kip30_backends.embedded.fork_gate import held_off
from kip30_backends.embedded.ownership import (
    refuse_untrusted,
    refuse_untrusted_file,
    trusted_directory,
)
from kip30_backends.embedded.patience import Patience
from kip30_backends.embedded.settings import default_directory

DATABASE = "kip30.db"
DOORBELL = "doorbell"
SESSIONS = "sessions"
LOCK = "create.lock"
_DATABASE_FILES = [f"{DATABASE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")]

APPLICATION_ID = 0x6B697033
VERSION = 2
"""The newest that this kip30 knows; `pruning` raises a file to it."""
_FIRST_VERSION = 1
"""That of a new file: an older kip30 may use it for as long as nothing was pruned from it."""
_SMALLEST = 512

_SCHEMA = """
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE identity (id TEXT NOT NULL);
INSERT INTO identity VALUES (lower(hex(randomblob(16))));
CREATE TABLE root (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE);
CREATE TABLE change (
    rev INTEGER PRIMARY KEY, root INTEGER NOT NULL, kind INTEGER NOT NULL,
    scope BLOB NOT NULL, name BLOB NOT NULL
);
INSERT INTO change VALUES (1, 0, 0, x'', x'');
CREATE TABLE kv (
    root INTEGER NOT NULL, namespace BLOB NOT NULL, name BLOB NOT NULL,
    rev INTEGER NOT NULL, nonce TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (root, namespace, name)
) WITHOUT ROWID;
CREATE TABLE session (
    id TEXT PRIMARY KEY, boot TEXT NOT NULL, deadline REAL NOT NULL, pid INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE member (
    root INTEGER NOT NULL, scope BLOB NOT NULL, id BLOB NOT NULL,
    rev INTEGER NOT NULL, nonce TEXT NOT NULL, data BLOB NOT NULL,
    born INTEGER NOT NULL, session TEXT NOT NULL,
    PRIMARY KEY (root, scope, id)
) WITHOUT ROWID;
CREATE INDEX member_session ON member (session);
CREATE TABLE service (
    root INTEGER NOT NULL, scope BLOB NOT NULL, epoch INTEGER NOT NULL,
    rev INTEGER NOT NULL, candidate BLOB, nonce TEXT, data BLOB, session TEXT,
    PRIMARY KEY (root, scope)
) WITHOUT ROWID;
CREATE INDEX service_session ON service (session);
COMMIT;
"""
_MARK = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {_FIRST_VERSION};"


def prepare(directory: Path, seconds: float) -> Path:
    """Return the database file of *directory*, made if there is none, checked if there is.

    Its path contains no link any more.

    Raises:
        StoreError: There is something else in its place, which stays as it is, byte by byte; or
            another user may change it (see `ownership`).
        UnavailableError: Another program kept it locked for *seconds*.
    """
    make_directory(directory)
    file = trusted_directory(directory) / DATABASE
    make_directory(file.with_name(SESSIONS))
    refuse_untrusted(file.with_name(SESSIONS))
    _make_file(file.with_name(DOORBELL), b"\0")
    for name in (DOORBELL, LOCK, *_DATABASE_FILES):
        refuse_untrusted_file(file.with_name(name))
    if not os.path.lexists(file):
        _create_or_wait(file, seconds)
    _check(file, seconds)
    return file


def make_directory(directory: Path) -> None:
    """Make *directory* for its owner alone, whatever the umask; leave one that exists as it is."""
    if directory.is_dir():
        return
    if directory == default_directory():
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
        directory.chmod(0o700)
    except FileExistsError:
        if not directory.is_dir():
            raise StoreError(f"{directory} is not a directory: move it away") from None
    except FileNotFoundError as error:
        raise StoreError(f"{directory.parent} is missing: make it first") from error


def _make_file(file: Path, content: bytes) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _create_or_wait(file: Path, seconds: float) -> None:
    """Create *file*, or wait until another process has created it."""
    lock = file.with_name(LOCK)
    _make_file(lock, b"")
    patience = Patience(seconds)
    while not _try_to_create(file, lock):
        patience.pause(f"{lock} stayed locked by another process")


def _try_to_create(file: Path, lock: Path) -> bool:
    """Create *file* if it is missing; false if another process is about to do that.

    A child that is forked meanwhile would keep the lock for as long as it lives.
    """
    with held_off.lock:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if not _flocked(descriptor):
                return False
            if not os.path.lexists(file):
                _create(file)
            return True
        finally:
            os.close(descriptor)


def _flocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _create(file: Path) -> None:
    draft = file.with_suffix(".new")
    for leftover in file.parent.glob(f"{draft.name}*"):
        leftover.unlink()
    _make_file(draft, b"")
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.executescript(_SCHEMA + _MARK)
        boots.note(connection)
    draft.rename(file)
    _sync(file.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(file: Path, seconds: float) -> None:
    if file.stat().st_size < _SMALLEST:
        raise StoreError(f"{file} is cut short: move it away, or restore it from a copy")
    Patience(seconds).through(lambda: _check_marks(file))


def check_marks(connection: sqlite3.Connection, file: Path) -> None:
    """Raise unless *connection* is to a database of this kip30; errors name *file*.

    Raises:
        StoreError: It is of another program, or of a newer kip30.
    """
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise StoreError(f"{file} was not made by kip30: move it away or name another directory")
    if version > VERSION:
        raise StoreError(f"{file} was made by a newer kip30 (schema {version}): upgrade this one")


def identity_of(connection: sqlite3.Connection) -> str:
    """Return what no other database has; empty for one that an older kip30 made."""
    is_there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'identity'"
    if not connection.execute(is_there).fetchone()[0]:
        return ""
    identity: str = connection.execute("SELECT id FROM identity").fetchone()[0]
    return identity


def _check_marks(file: Path) -> None:
    # Read-only, so that even recovery of someone else's database stays undone.
    uri = f"{file.absolute().as_uri()}?mode=ro"
    with (
        held_off.lock,
        closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection,
    ):
        check_marks(connection, file)
