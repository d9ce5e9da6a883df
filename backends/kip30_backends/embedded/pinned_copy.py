"""A copy of the database as it is at one moment, which many processes can read.

SQLite reads a point in time within one transaction of one process. Such a transaction would keep
the log from being restarted for as long as it lasts, and no other process could join it. A copy
has neither fault. It is made by ``VACUUM INTO``, in a process of its own: this one then has no
SQLite state of the live file, which a fork in the middle of the copy would break (see `forks`).
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from kip30.errors import StoreError, UnavailableError
from kip30_backends.embedded.errors import stayed_locked, translate
from kip30_backends.embedded.schema import check_marks, identity_of

_COPY = """
import os, sqlite3, sys
uri, copy, seconds = sys.argv[1:]
os.umask(0o077)
try:
    connection = sqlite3.connect(uri, uri=True, timeout=float(seconds), isolation_level=None)
    connection.execute("VACUUM INTO ?", (copy,))
except sqlite3.Error as error:
    sys.exit(f"{getattr(error, 'sqlite_errorcode', 1)} {error}")
"""
_REV = "SELECT max(rev) FROM change"


class Pinned(NamedTuple):
    """What a copy is of: which database, and its newest revision."""

    identity: str
    rev: int


def pin(file: Path, directory: Path, seconds: float) -> Pinned:
    """Copy *file* into *directory*.

    Raises:
        StoreError: It cannot be read or is not kip30's, or the copy cannot be written.
        UnavailableError: It stayed locked for *seconds*.
    """
    draft = directory / f"draft-{os.getpid()}-{os.urandom(4).hex()}.db"
    try:
        _copy(file, draft, seconds)
        with closing(open_copy(draft)) as copy:
            check_marks(copy, file)
            pinned = Pinned(identity_of(copy), copy.execute(_REV).fetchone()[0])
        draft.replace(path_of(directory, pinned.rev))
    except (sqlite3.Error, OSError) as error:
        raise translate(error, draft) from error
    finally:
        draft.unlink(missing_ok=True)
    return pinned


def path_of(directory: Path, rev: int) -> Path:
    """Return where the copy of revision *rev* is in *directory*."""
    return directory / f"pin-{rev}.db"


def open_copy(copy: Path) -> sqlite3.Connection:
    """Return a connection to a copy: it takes no locks, because copies are never written."""
    uri = f"{copy.absolute().as_uri()}?immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _copy(file: Path, copy: Path, seconds: float) -> None:
    until = monotonic() + seconds
    while True:
        before = _unused(file)
        # A database without a log has no connection. It is read without locks then: a reader that
        # takes them would make a log and an index beside it, and could not remove them.
        mode = "mode=ro" if before is None else "immutable=1"
        _run(f"{file.as_uri()}?{mode}", copy, seconds, file)
        if before is None or _unused(file) == before:
            return
        copy.unlink()  # a process opened the file meanwhile, so the copy may be a mixture
        if monotonic() > until:
            raise UnavailableError(stayed_locked(file))


def _unused(file: Path) -> tuple[int, int] | None:
    """Return what changes with *file*, or None if a process has it open."""
    if os.path.lexists(f"{file}-wal"):
        return None
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _run(uri: str, copy: Path, seconds: float, file: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", _COPY, uri, str(copy), str(seconds)]
    done = subprocess.run(  # noqa: S603  our own program, with the paths as arguments
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not done.returncode:
        return
    code, _, message = done.stderr.strip().rpartition("\n")[2].partition(" ")
    if not code.isdecimal():
        raise StoreError(f"the copy of {file} failed: {done.stderr.strip()}")
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = int(code)
    raise translate(error, file)
