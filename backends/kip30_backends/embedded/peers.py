"""Which sessions live, and taking from the dead what they held.

A session lives while its row has a deadline to come and the kernel still holds
its lock, which it drops when the process dies or the machine is started again. A client that
notices that one of these has ended takes its claims away in a transaction, so that at any
time the database alone says who holds what.
"""

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from kip30.driver.clock import Clock
from kip30.driver.records import Kind
from kip30_backends.embedded.database import Transaction
from kip30_backends.embedded.locks import Locks

_SESSION = "SELECT boot, deadline FROM session WHERE id = ?"
_SESSIONS = "SELECT id, boot, deadline FROM session"
_MEMBERS = "SELECT root, scope, id FROM member WHERE session = ?"
_NO_MEMBERS = "DELETE FROM member WHERE session = ?"
_SERVICES = "SELECT root, scope, candidate FROM service WHERE session = ?"
_NO_SERVICES = """
UPDATE service SET candidate = NULL, nonce = NULL, data = NULL, session = NULL,
rev = (SELECT max(rev) FROM change) WHERE session = ?
"""
_NO_SESSION = "DELETE FROM session WHERE id = ?"

Row = tuple[str, str, float]


class Peers:
    """The sessions of all processes that share one directory."""

    def __init__(self, folder: Path, locks: Locks, clock: Clock, boot: str) -> None:
        """Judge by the lock files in *folder* and by *clock*; *boot* is the id of this start."""
        self.boot = boot
        self._folder = folder
        self._prefix = f"{folder}{os.sep}"
        self._disowned: set[str] = set()
        self._locks = locks
        self._clock = clock

    def lock_file(self, session: str) -> str:
        """Return where *session* has its lock."""
        return f"{self._prefix}{session}.lock"

    def is_alive(self, session: str, boot: str, deadline: float) -> bool:
        """Say whether the session with this row lives."""
        del boot  # a container may have one of its own, and shares locks and clock
        if session in self._disowned or type(deadline) is not float:
            return False
        if self._clock.now() >= deadline:
            return False
        # Of before a start of the machine, the deadline says nothing, but there is no lock.
        return self._locks.is_held(self.lock_file(session))

    def disown(self, session: str) -> None:
        """Take *session* for dead from now on, because this process is ending it.

        A claim made at the same time must not meet the old claim of its own process. It stays so
        until the next session is opened, for the database may be out of reach when this one ends.
        """
        self._disowned.add(session)

    def forget_disowned(self) -> None:
        """Forget all that were disowned, after a transaction that swept them."""
        self._disowned.clear()

    def spare(self, transaction: Transaction, session: str) -> bool:
        """Say whether *session* lives; if not, what it held is free when this returns."""
        row = transaction.execute(_SESSION, (session,)).fetchone()
        if row is not None and self.is_alive(session, *row):
            return True
        self.end(transaction, session)
        return False

    def spare_living(self, transaction: Transaction, sessions: Iterable[str]) -> set[str]:
        """Return which of *sessions* live; what the others held is free when this returns."""
        return {session for session in sessions if self.spare(transaction, session)}

    def sessions(self, connection: sqlite3.Connection) -> list[Row]:
        """Return the rows of all sessions, as `is_alive` takes them."""
        return connection.execute(_SESSIONS).fetchall()

    def end(self, transaction: Transaction, session: str) -> None:
        """Take away all that *session* holds, and itself."""
        execute = transaction.execute
        for row in execute(_MEMBERS, (session,)).fetchall():
            transaction.change(row[0], Kind.GROUP, row[1], row[2])
        execute(_NO_MEMBERS, (session,))
        for row in execute(_SERVICES, (session,)).fetchall():
            transaction.change(row[0], Kind.SERVICE, row[1], row[2])
        execute(_NO_SERVICES, (session,))
        execute(_NO_SESSION, (session,))
        Path(self.lock_file(session)).unlink(missing_ok=True)

    def sweep(self, transaction: Transaction) -> None:
        """End all dead sessions, and remove the files of those that died being opened."""
        rows = transaction.execute(_SESSIONS).fetchall()
        living = self.spare_living(transaction, [row[0] for row in rows])
        for file in self._folder.glob("*.lock"):
            if file.stem not in living and not self._locks.is_held(str(file)):
                file.unlink(missing_ok=True)
