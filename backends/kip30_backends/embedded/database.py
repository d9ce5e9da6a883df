"""Transactions: one way to read and one to write, and a log that stays short.

A process that is stopped in the middle of a commit keeps the others from
writing until it goes on or dies; they answer `UnavailableError` meanwhile.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from kip30.errors import StoreError
from kip30.records import Kind
from kip30_backends.embedded.connections import LOG_BYTES, Connections
from kip30_backends.embedded.errors import is_busy, translate_commit
from kip30_backends.embedded.patience import Patience

T = TypeVar("T")

KINDS = {Kind.VALUE: 1, Kind.GROUP: 2, Kind.SERVICE: 3}

_LOG_CHANGE = "INSERT INTO change (root, kind, scope, name) VALUES (?, ?, ?, ?)"
_FORGET_CHANGES = "DELETE FROM change WHERE rev <= ?"
_KEPT_CHANGES = 4096
_FORGET_EVERY = 1024
_LOOK_AT_LOG_EVERY = 64


class Transaction:
    """A write transaction under way."""

    __slots__ = ("changed", "execute")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Execute statements on *connection*."""
        self.execute = connection.execute
        self.changed = False

    def change(self, root: int, kind: Kind, scope: bytes, name: bytes) -> int:
        """Take note that something changes, and return its revision.

        The log of changes is also the counter: its last row is never deleted, so that no
        revision comes twice.
        """
        self.changed = True
        rev = self.execute(_LOG_CHANGE, (root, KINDS[kind], scope, name)).lastrowid or 0
        if not rev % _FORGET_EVERY:
            self.execute(_FORGET_CHANGES, (rev - _KEPT_CHANGES,))
        return rev


class Database:
    """An open database file. Thread-safe."""

    def __init__(
        self, file: Path, connections: Connections, *, seconds: float, ring: Callable[[], None]
    ) -> None:
        """Wait up to *seconds* for others; call *ring* after each commit that changed something."""
        self.file = file
        self.connections = connections
        self._seconds = seconds
        self._ring = ring
        self._log = file.with_name(f"{file.name}-wal")
        self._inode = file.stat().st_ino
        self._commits = -1

    def patience(self) -> Patience:
        """Return the time that one operation may take, beginning now."""
        return Patience(self._seconds)

    def read(self, work: Callable[[sqlite3.Connection], T], patience: Patience | None = None) -> T:
        """Return what *work* reads."""
        slot = self.connections.slot()
        patience = patience or self.patience()
        with slot.lock:
            return patience.through(lambda: self._once(slot.connection, work))

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        durable: bool = False,
        patience: Patience | None = None,
    ) -> T:
        """Do *work* in one transaction and return what it returns; if it raises, undo it.

        With *durable* the commit outlives a power failure, whatever the settings.

        Raises:
            sqlite3.OperationalError: Another connection was writing all the time (`is_busy`).
                Nothing was done.
            OutcomeUnknownError: The commit failed in a way that may have left it on the disk.
        """
        slot = self.connections.slot()
        with slot.lock:
            transaction = Transaction(slot.connection)
            if durable:
                slot.connection.execute("PRAGMA synchronous = FULL")
            try:
                self._begin(slot.connection, patience)
                result = work(transaction)
                self._commit(slot.connection)
            finally:
                self._end(slot.connection, durable=durable)
            if transaction.changed:
                self._ring()
            self._keep_log_short(slot.connection)
        return result

    def _once(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        self.connections.refuse()
        try:
            return work(connection)
        finally:
            if connection.in_transaction:
                connection.rollback()

    def _begin(self, connection: sqlite3.Connection, patience: Patience | None) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            patience = patience or self.patience()
            patience.through(lambda: self._begin_unless_closed(connection))
        if self.file.stat().st_ino != self._inode:
            raise StoreError(f"{self.file} was replaced while it was open: start again")

    def _begin_unless_closed(self, connection: sqlite3.Connection) -> None:
        self.connections.refuse()
        connection.execute("BEGIN IMMEDIATE")

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate_commit(error, self.file) from error

    def _end(self, connection: sqlite3.Connection, *, durable: bool) -> None:
        if connection.in_transaction:
            connection.rollback()
        if durable:
            connection.execute(f"PRAGMA synchronous = {self.connections.synchronous}")

    def _keep_log_short(self, connection: sqlite3.Connection) -> None:
        self._commits += 1
        if self._commits % _LOOK_AT_LOG_EVERY:
            return
        # What was committed is done, whatever becomes of this.
        with suppress(sqlite3.Error, OSError):
            if self._log.stat().st_size > LOG_BYTES:
                self._checkpoint(connection)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy the write-ahead log back while this connection keeps every writer out.

        SQLite before 3.51.3 can corrupt the file if a writer begins the log anew while another
        connection checkpoints it. No mode of checkpointing excludes that by itself: those that
        ask for the writers' lock go on without it when they do not get it.
        """
        connection.execute("BEGIN IMMEDIATE")
        try:
            with closing(self.connections.connect()) as copier:
                copier.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            connection.rollback()
