"""The database file: created whole or not at all, in a trusted folder and file system.

SQLite and the kernel follow links. In a directory that another user prepared, the signal file could
be any file of this user, and the folder of sessions any folder. The directory is checked first: if
only this user and root may write it, its entries cannot change after they are checked. The
directories above it are trusted, because their owners decide where this one is.

With ``synchronous = normal`` a power failure undoes the last transactions. Their revisions would be
given out again, and a version that a client remembers would be that of another write. So the first
startup after a start of the machine leaves out more revisions than can have been lost.
"""

import fcntl
import logging
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from kip30.driver.kit.thread_start import started
from kip30.errors import StoreError
from kip30_backends.embedded.connections import LockBackoff
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.fork_safety import DirectoryLock
from kip30_backends.embedded.liveness import FormerSessions
from kip30_backends.embedded.liveness_locks import Locks, held_off
from kip30_backends.embedded.settings import default_directory

_log = logging.getLogger(__name__)

SKIPPED = 2**32
"""Number of revisions to skip: more than any log holds, and few enough to skip 2^31 times."""

_TABLE = "CREATE TABLE IF NOT EXISTS boot (id TEXT NOT NULL)"
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'boot'"
_FIND = "SELECT id FROM boot"
_FORGET = "DELETE FROM boot"
_NOTE = "INSERT INTO boot VALUES (?)"
_SKIP = "INSERT INTO change SELECT max(rev) + ?, 0, 0, x'', x'' FROM change"


def note(connection: sqlite3.Connection) -> None:
    """Record the boot id in a database that is being created."""
    connection.execute(_TABLE)
    connection.execute(_NOTE, (boot_id(),))


def boot_id() -> str:
    """Return an id of this start of the machine, or ``""`` if there is none.

    A container may have one of its own.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def skip_lost_revisions(database: Database, boot: str, backoff: LockBackoff) -> None:
    """Skip revisions unless that was done since the start called *boot*.

    Raises:
        UnavailableError: Another thread was waiting for another program. Nothing was done.
        sqlite3.OperationalError: Another process was writing (`is_busy`). Nothing was done.
    """
    if not database.read(lambda connection: _is_noted(connection.execute, boot), backoff):
        # Before any revision after them is given out, they must outlive the next power failure.
        database.write(lambda tx: _skip(tx, boot), durable=True, backoff=backoff)


def _is_noted(execute: Callable[[str], sqlite3.Cursor], boot: str) -> bool:
    # A database that an older kip30 made has no such table.
    has_table = execute(_HAS_TABLE).fetchone() is not None
    return bool(boot) and has_table and execute(_FIND).fetchone() == (boot,)


def _skip(tx: Transaction, boot: str) -> None:
    if not _is_noted(tx.execute, boot):
        tx.execute(_TABLE)
        tx.execute(_SKIP, (SKIPPED,))
        tx.execute(_FORGET)
        tx.execute(_NOTE, (boot,))


_ROOT = 0


def trusted_directory(directory: Path) -> Path:
    """Return the real path of *directory*, which may itself be a link of this user or of root.

    Raises:
        StoreError: Another user owns it, or the link to it, or may write it.
    """
    link = directory.lstat()
    if stat.S_ISLNK(link.st_mode):
        _refuse_strange_owner(directory, link)
    real = directory.resolve()
    _refuse_strangers(real, real.stat())
    return real


def refuse_untrusted(path: Path) -> os.stat_result | None:
    """Raise if *path*, in a trusted directory, is a link or others may change it.

    Returns:
        What is at *path*, or None if it is missing.

    Raises:
        StoreError: It is, or may.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise StoreError(f"{path} is a symbolic link, which is not followed: move it away")
    _refuse_strangers(path, found)
    return found


def refuse_untrusted_file(path: Path) -> None:
    """Raise as `refuse_untrusted` does, and if *path* is there but is not a regular file.

    One check only: SQLite removes its log as soon as the last connection is closed.
    """
    found = refuse_untrusted(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a file: move it away")


def _refuse_strangers(path: Path, found: os.stat_result) -> None:
    _refuse_strange_owner(path, found)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"{path} can be written by other users: `chmod go-w {path}` if you trust what is there,"
            " or name another directory"
        )


def _refuse_strange_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in {os.geteuid(), _ROOT}:
        raise StoreError(
            f"{path} belongs to user {found.st_uid}: run as that user, or name another directory"
        )


DATABASE = "kip30.db"
SIGNAL_FILE = "doorbell"
SESSIONS = "sessions"
LOCK = "create.lock"
_DATABASE_FILES = [f"{DATABASE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")]

APPLICATION_ID = 0x6B697033
VERSION = 2
"""The newest that this kip30 knows; `service_pruning` raises a file to it."""
_FIRST_VERSION = 1
"""That of a new file: an older kip30 may use it for as long as nothing was pruned from it."""
_SMALLEST = 512
_LONGEST_CHECK_SECONDS = 2.0
"""Forks wait for the check of a log, and not much longer (`fork_safety`)."""

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


def prepare(directory: Path, locks: Locks, seconds: float) -> tuple[Path, DirectoryLock]:
    """Return the database file of *directory*, created if missing, checked if it exists.

    Its path no longer contains a link. The lock of the directory is shared with other processes
    for as long as the store is open, and the caller closes it.

    Args:
        directory: Where the store is.
        locks: Those of its sessions.
        seconds: How long to wait for other processes.

    Raises:
        StoreError: There is something else in its place, which stays as it is, byte by byte; or
            another user may change it (see `refuse_untrusted`); or a log beside it is of another
            file.
        UnavailableError: Another program kept it locked for *seconds*; or it was removed or
            replaced, and a session of the former file did not end meanwhile.
    """
    make_directory(directory)
    real = trusted_directory(directory)
    lock = DirectoryLock(real)
    try:
        file = _prepare(real, lock, locks, seconds)
        lock.share(seconds)
    except BaseException:
        lock.close()
        raise
    return file, lock


def _prepare(directory: Path, lock: DirectoryLock, locks: Locks, seconds: float) -> Path:
    file = directory / DATABASE
    make_directory(file.with_name(SESSIONS))
    refuse_untrusted(file.with_name(SESSIONS))
    _make_file(file.with_name(SIGNAL_FILE), b"\0")
    for name in (SIGNAL_FILE, LOCK, *_DATABASE_FILES):
        refuse_untrusted_file(file.with_name(name))
    _make_file(file.with_name(LOCK), b"")
    former, backoff = FormerSessions(file, LOCK, SESSIONS, lock, locks), LockBackoff(seconds)
    while not os.path.lexists(file):
        if former.have_ended() and _try_to_create(file):
            break
        backoff.pause(f"{file} is missing, and {former}")
    while not (former.is_known() or former.have_ended()):
        backoff.pause(f"{file} was replaced, and {former}")
    if lock.is_alone:
        _check_log(file, min(seconds, _LONGEST_CHECK_SECONDS))
    former.mark()
    _check(file, seconds)
    return file


def make_directory(directory: Path) -> None:
    """Create *directory* for its owner alone, under any umask; leave an existing one unchanged."""
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


def _try_to_create(file: Path) -> bool:
    """Create *file* if it is missing; false if another process is about to do that.

    A child that is forked meanwhile would keep the lock as long as it lives.
    """
    with held_off.lock:
        descriptor = os.open(file.with_name(LOCK), os.O_RDONLY | os.O_NOFOLLOW)
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
        note(connection)
        # Closing does that as well, but raises nothing if the disk is full.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    _set_log_aside(file)
    draft.rename(file)
    _sync(file.parent)


def _set_log_aside(file: Path) -> None:
    """Rename the log of a database that was removed: SQLite would copy it into the new one."""
    log = file.with_name(f"{file.name}-wal")
    if os.path.lexists(log):
        former = log.replace(file.with_name(f"{log.name}.former"))
        _log.warning("%s was removed without its log, which is kept as %s", file, former)
    file.with_name(f"{file.name}-shm").unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(file: Path, seconds: float) -> None:
    if file.stat().st_size < _SMALLEST:
        raise StoreError(f"{file} is cut short: move it away, or restore it from a copy")
    LockBackoff(seconds).through(lambda: _check_marks(file))


def check_marks(connection: sqlite3.Connection, file: Path) -> None:
    """Raise unless *connection* is to a database of this kip30; errors name *file*.

    Raises:
        StoreError: It belongs to another program, or to a newer kip30.
    """
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise StoreError(f"{file} was not made by kip30: move it away or name another directory")
    if version > VERSION:
        raise StoreError(f"{file} was made by a newer kip30 (schema {version}): upgrade this one")


def identity_of(connection: sqlite3.Connection) -> str:
    """Return an id that no other database has; empty for one that an older kip30 made."""
    is_there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'identity'"
    if not connection.execute(is_there).fetchone()[0]:
        return ""
    identity: str = connection.execute("SELECT id FROM identity").fetchone()[0]
    return identity


def _check_log(file: Path, seconds: float) -> None:
    """Raise if the log beside *file* is not of this file, as far as that shows within *seconds*.

    Raises:
        StoreError: It is not, or one of both is damaged. Both are left as they are.
    """
    log = file.with_name(f"{file.name}-wal")
    if not (log.exists() and log.stat().st_size):
        return
    with held_off.lock, closing(_connected_to_read(file)) as connection:
        # No progress handler: SQLite 3.40 does not call one for most of the time, and swallows what
        # a signal handler raises in it.
        limit = threading.Timer(seconds, connection.interrupt)
        try:
            connection.execute("PRAGMA schema_version").fetchone()  # reads the log, by no check yet
            started(limit)  # where the system has no thread to spare, the check has no limit
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                return
            found = str(error)
        finally:
            limit.cancel()
            if limit.is_alive():
                limit.join()  # before the connection is closed
    if found != "ok":
        raise StoreError(
            f"{file} and {log.name} beside it do not belong together, or are damaged: if a copy of"
            f" {file.name} was put back, remove {log.name} and {file.name}-shm, which are of the"
            f" former file, and start again; otherwise move all three away ({found})"
        )


def _connected_to_read(file: Path) -> sqlite3.Connection:
    # Read-only, so that not even recovery changes another program's database.
    uri = f"{file.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)


def _check_marks(file: Path) -> None:
    with held_off.lock, closing(_connected_to_read(file)) as connection:
        check_marks(connection, file)


_MOUNT_TABLE = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|ceph|afs|coda|ncpfs|lustre|gfs2?|ocfs2|beegfs|glusterfs"
    r"|gpfs|pvfs2|orangefs|vboxsf|vmhgfs|prl_fs|virtiofs|fakeowner|davfs2?"
    r"|fuse\.(grpcfuse|sshfs|s3fs|gcsfuse|glusterfs|ceph(-fuse)?|rclone|davfs2?|curlftpfs|smbnetfs"
    r"|vmhgfs-fuse|juicefs|goofys|mount-s3|seaweedfs|lizardfs|moosefs|hdfs.*)"
)


def refuse_network(directory: Path) -> None:
    """Raise `StoreError` if *directory* is on a network file system. Nothing was done."""
    try:
        table = _MOUNT_TABLE.read_text(errors="surrogateescape")
    except OSError:
        return
    kind = file_system(os.path.realpath(directory), table)
    if _NETWORK.fullmatch(kind):
        raise StoreError(
            f"{directory} is on a network file system ({kind}), where file locks are not reliable:"
            " set plugin.embedded.directory to a local one"
        )


def file_system(path: str, table: str) -> str:
    """Return the type of the file system *path* is on, by a table like mountinfo; or ``""``."""
    best, kind = "", ""
    for line in table.splitlines():
        place, found = _mount(line)
        if f"{path}/".startswith(f"{place.rstrip('/')}/") and len(place) >= len(best):
            best, kind = place, found
    return kind


def _mount(line: str) -> tuple[str, str]:
    left, _, right = line.partition(" - ")
    fields = left.split(" ")
    place = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
    return place, right.split(" ")[0]
