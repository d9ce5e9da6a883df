"""Starts of the machine, after which what was not synchronised may be missing.

With ``synchronous = normal`` a power failure undoes the last transactions. Their revisions would be
given out again, and a version that a client remembers would be that of another write. So the first
startup after a start of the machine leaves out more revisions than can have been lost.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.patience import Patience

SKIPPED = 2**32
"""How many revisions are left out: more than any log holds, and enough are left for 2^31 times."""

_TABLE = "CREATE TABLE IF NOT EXISTS boot (id TEXT NOT NULL)"
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'boot'"
_FIND = "SELECT id FROM boot"
_FORGET = "DELETE FROM boot"
_NOTE = "INSERT INTO boot VALUES (?)"
_SKIP = "INSERT INTO change SELECT max(rev) + ?, 0, 0, x'', x'' FROM change"


def note(connection: sqlite3.Connection) -> None:
    """Note in a database that is being made in which start that is."""
    connection.execute(_TABLE)
    connection.execute(_NOTE, (boot_id(),))


def boot_id() -> str:
    """Return what tells this start of the machine from others, or ``""`` if nothing does.

    A container may have one of its own.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def skip_lost_revisions(database: Database, boot: str, patience: Patience) -> None:
    """Leave revisions out unless that was done since the start called *boot*.

    Raises:
        UnavailableError: Another thread was waiting for another program. Nothing was done.
        sqlite3.OperationalError: Another process was writing (`is_busy`). Nothing was done.
    """
    if not database.read(lambda connection: _is_noted(connection.execute, boot), patience):
        # Before any revision after them is given out, they must outlive the next power failure.
        database.write(lambda tx: _skip(tx, boot), durable=True, patience=patience)


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
