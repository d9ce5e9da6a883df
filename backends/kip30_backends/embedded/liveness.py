"""The liveness of sessions, and the end of the claims of dead ones.

A session lives while its row has a future deadline and the kernel still holds its lock, which it
drops when the process dies or the machine restarts. If its lock file was removed, only the deadline
counts. A client that notices the end of one deletes its claims in a transaction, so at any time the
database alone has all claims and their holders. While a client watches the claims of others, it
checks that they live (`LivenessCheck`).
"""

import os
import sqlite3
import time
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.clock import Clock
from kip30.driver.records import Kind
from kip30.errors import Kip30Error
from kip30_backends.embedded.connections import LockBackoff
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.fork_safety import DirectoryLock
from kip30_backends.embedded.liveness_locks import Locks, mark_of

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

NOTICED_SECONDS = 0.5
"""Seconds in which a client with a session notices that its database was removed or replaced."""

Row = tuple[str, str, float]


class SessionLiveness:
    """The sessions of all processes that share one directory."""

    def __init__(self, folder: Path, locks: Locks, clock: Clock, boot: str) -> None:
        """Judge by the lock files in *folder* and by *clock*; *boot* is the id of this start."""
        self.boot = boot
        self._folder = folder
        self._prefix = f"{folder}{os.sep}"
        # Sessions of this process that count as dead (`mark_ending`). Any thread adds to it.
        self._ending: set[str] = set()
        self._locks = locks
        self._clock = clock

    def lock_file(self, session: str) -> str:
        """Return the path of the lock file of *session*."""
        return f"{self._prefix}{session}.lock"

    def is_alive(self, session: str, boot: str, deadline: float) -> bool:
        """Return whether the session with this row lives."""
        if session in self._ending or type(deadline) is not float:
            return False
        if self._clock.now() >= deadline:
            return False
        held = self._locks.is_held(self.lock_file(session))
        # After a restart of the machine the deadline is meaningless, but there is no lock. If
        # something removed or replaced the file, the session lasts until its deadline: its client
        # may still rely on it. A container may have a boot id of its own, and shares the locks.
        return boot == self.boot if held is None else held

    def mark_ending(self, session: str) -> None:
        """Treat *session* as dead from now on, because this process is ending it.

        A claim made at the same time must not conflict with the old claim of its own process. It
        stays so until the next session is opened, because the database may be unreachable when this
        one ends.
        """
        self._ending.add(session)

    def clear_ending(self) -> None:
        """Forget all sessions marked as ending, after a transaction that removed them."""
        self._ending.clear()

    def is_alive_else_end(self, transaction: Transaction, session: str) -> bool:
        """Return whether *session* lives; if not, its claims have ended when this returns."""
        row = transaction.execute(_SESSION, (session,)).fetchone()
        if row is not None and self.is_alive(session, *row):
            return True
        self.end(transaction, session)
        return False

    def end_dead(self, transaction: Transaction, sessions: Iterable[str]) -> set[str]:
        """Return which of *sessions* live; the claims of the others have then ended."""
        return {session for session in sessions if self.is_alive_else_end(transaction, session)}

    def sessions(self, connection: sqlite3.Connection) -> list[Row]:
        """Return the rows of all sessions, as `is_alive` takes them."""
        return connection.execute(_SESSIONS).fetchall()

    def end(self, transaction: Transaction, session: str) -> None:
        """Delete *session* and all its claims."""
        execute = transaction.execute
        for row in execute(_MEMBERS, (session,)).fetchall():
            transaction.change(row[0], Kind.GROUP, row[1], row[2])
        execute(_NO_MEMBERS, (session,))
        for row in execute(_SERVICES, (session,)).fetchall():
            transaction.change(row[0], Kind.SERVICE, row[1], row[2])
        execute(_NO_SERVICES, (session,))
        execute(_NO_SESSION, (session,))
        transaction.remove_after_commit(self.lock_file(session))

    def sweep(self, transaction: Transaction) -> None:
        """End all dead sessions, and remove the files of those that died while being opened."""
        sessions = [row[0] for row in transaction.execute(_SESSIONS)]
        self.end_dead(transaction, sessions)
        known = set(sessions)
        for file in self._folder.glob("*.lock"):
            # Within the transaction, because the process that makes it may open a session next.
            if file.stem not in known and not self._locks.is_held(str(file)):
                file.unlink(missing_ok=True)


class UnconfirmedEnds:
    """Sessions of one backend that are over, until the store shows no claim of them. Thread-safe.

    Others see by the lock of such a session that it has ended. If its lock file was removed they
    wait for its deadline, so its end is retried until then.
    """

    def __init__(self, context: Context, database: Database, liveness: SessionLiveness) -> None:
        """Know of none yet."""
        self._context = context
        self._database = database
        self._liveness = liveness
        # With their latest deadlines in the store; None while their leases end.
        self._deadlines: dict[str, float | None] = {}

    def has_any(self) -> bool:
        """Return whether an end is not confirmed, or about to begin."""
        return bool(self._deadlines)

    def expect(self, session: str) -> None:
        """Note that *session* is about to end: not yet, as its holders still rely on it."""
        self._deadlines[session] = None

    def end(self, session: str, backoff: LockBackoff | None) -> bool:
        """Delete *session*, on which no holder relies, and its claims; false if that failed.

        Then `retry` does it, until a session timeout from now: by then it has passed its deadline.
        """
        now, timeout = self._context.clock.now(), self._context.session_timeout_seconds
        self._deadlines[session] = now + timeout
        return self._try_to_delete(session, backoff)

    def retry(self, patience_seconds: float) -> None:
        """Try again to end those that could not be ended, each for *patience_seconds*."""
        for session, deadline in list(self._deadlines.items()):
            if deadline is None:
                continue
            if self._context.clock.now() >= deadline:
                self._deadlines.pop(session, None)
            else:
                self._try_to_delete(session, LockBackoff(patience_seconds))

    def abandon(self) -> None:
        """In a forked child: the parent ends them."""
        self._deadlines.clear()

    def _try_to_delete(self, session: str, backoff: LockBackoff | None) -> bool:
        """Delete *session* and its claims; false if the store cannot be reached."""
        try:
            end = partial(self._liveness.end, session=session)
            self._database.write(end, backoff=backoff, urgent=True)
        except (Kip30Error, sqlite3.Error, OSError):
            return False
        self._deadlines.pop(session, None)
        return True


class FormerSessions:
    """Sessions of a database that was removed or replaced; their clients may still lead by it.

    Such a client notices that, ends the session and unlocks its lock file. A file beside the
    database notes which one processes open.
    """

    def __init__(
        self, file: Path, note: str, folder: str, directory: DirectoryLock, locks: Locks
    ) -> None:
        """Look in *folder* beside *file*, unless no other process has locked the *directory*."""
        self._file = file
        self._note = file.with_name(note)
        self._folder = file.with_name(folder)
        self._directory = directory
        self._locks = locks
        # The lock files may have been removed as well.
        self._until = time.monotonic() + NOTICED_SECONDS

    def have_ended(self) -> bool:
        """Return whether none is left."""
        if self._directory.is_alone_now():
            return True
        if time.monotonic() < self._until:
            return False
        return not any(self._locks.is_held(str(file)) for file in self._folder.glob("*.lock"))

    def is_known(self) -> bool:
        """Return whether the file is the one that others have open, if any process has."""
        return self._note.read_bytes() in {b"", mark_of(self._file.stat())}

    def mark(self) -> None:
        """Note that the file is the one that processes open.

        In one step, and not at all if that is noted: others read it meanwhile.
        """
        # An open store keeps the number from other files (`fork_safety.PinnedInode`).
        mark = mark_of(self._file.stat())
        if self._note.read_bytes() == mark:
            return
        descriptor = os.open(self._note, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            os.pwrite(descriptor, mark, 0)
        finally:
            os.close(descriptor)

    @override
    def __str__(self) -> str:
        return "a process has a session of the former one: end that process"


_SHORT = 0.1
_SUSPECT_EVERY = 0.001
_SUSPECT_TIMES = 20
_SHARE_OF_TIME = 50


class LivenessCheck:
    """Checks whether other sessions live, as often as that is cheap."""

    def __init__(self, database: Database, liveness: SessionLiveness, clock: Clock) -> None:
        """Check all sessions in *database*, whose deadlines are by *clock*."""
        self._database = database
        self._liveness = liveness
        self._clock = clock
        # All of these are written by the checking thread.
        # Sessions whose lock files were closed, and how often each will still be checked.
        self._suspects: dict[str, int] = {}
        # When all are checked again, by `time.monotonic`, and the earliest deadline of the living,
        # by the clock of leases.
        self._look_at_all = 0.0
        self._earliest = 0.0

    def look(self, closed: Collection[str] | None, every: float) -> None:
        """End dead sessions among those whose lock files were *closed*, and at times among all.

        The kernel reports that a file is closed just before it drops the lock, so a suspect is
        checked more than once.
        """
        for name in closed or ():
            self._suspects[name.removesuffix(".lock")] = _SUSPECT_TIMES
        at_all = time.monotonic() >= self._look_at_all or self._clock.now() >= self._earliest
        if at_all or self._suspects:
            self._look(every, at_all=at_all)

    def seconds_to_look(self) -> float:
        """Return how long until a session may be dead without a signal of that."""
        return _SUSPECT_EVERY if self._suspects else self._earliest - self._clock.now()

    def _look(self, every: float, *, at_all: bool) -> None:
        started = time.monotonic()
        rows = self._database.read(self._liveness.sessions, LockBackoff(_SHORT))
        dead = [
            row[0]
            for row in rows
            if (at_all or row[0] in self._suspects) and not self._liveness.is_alive(*row)
        ]
        if dead:
            sweep = partial(self._liveness.end_dead, sessions=dead)
            self._database.write(sweep, backoff=LockBackoff(_SHORT))
        living = {session: deadline for session, _, deadline in rows if session not in dead}
        self._suspects = {
            session: left - 1
            for session, left in self._suspects.items()
            if session in living and left
        }
        self._earliest = min(living.values(), default=float("inf"))
        if at_all:
            cost = time.monotonic() - started
            self._look_at_all = started + max(every, cost * _SHARE_OF_TIME)
