"""Transactions: one way to read, one queue to write, and a log that stays short.

A process that is stopped in the middle of a commit keeps the others from writing until it continues
or dies; they raise `UnavailableError` meanwhile. Between two attempts at a transaction no lock is
held, and the process may fork. A transaction begins inside the block at whose end C code ends it. A
signal handler may raise in the main thread when a Python function begins, so none is called between
an error and the rollback.

SQLite has one writer at a time and no queue: a thread that does not get the lock sleeps and
retries, without jitter. With many threads some starve, a session's renewal among them. So the
threads of one process queue here (`WriteQueue`), only the thread whose turn it is retries in
SQLite, and it waits for other processes with jitter (`LockBackoff`).

A signal handler can raise in the main thread, also while it leaves the queue. CPython runs handlers
where a Python function begins, after a call and at the end of a round of a loop. So the main thread
gives its turn up by an assignment (`QueueTurn.over`), and other threads complete the hand-over:

    turn = QueueTurn()
    try:
        if queue.enter(turn, seconds):
            ...
    finally:
        turn.over = True  # first: no handler can run before it
        queue.leave(turn)
"""

import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from kip30.driver.records import Kind
from kip30.errors import UnavailableError
from kip30_backends.embedded.connections import LOG_BYTES, Connections, LocalConnection, LockBackoff
from kip30_backends.embedded.errors import (
    is_busy,
    is_full,
    no_turn,
    raised_by_program,
    translate_commit,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
"""Seconds that a thread waits, for each one ahead of it, before it checks the queue itself."""


class QueueTurn:
    """One thread's place in a queue, used once.

    Attributes:
        over: Whether the thread no longer needs its place, in the queue or not.
        came: Held until the turn may have come; None unless the thread waits. Acquired by the
            thread, released by any.
    """

    # Defaults of the class: each write makes a turn, and nearly none waits.
    over = False
    came: "threading.Lock | None" = None


class WriteQueue:
    """Gives one thread at a time the turn to write, first come, first served. Thread-safe.

    A thread must not hold the lock of a connection while it waits here. A forked child needs a new
    queue: the threads that wait in this one, or have the turn, do not exist there.
    """

    def __init__(self) -> None:
        """Begin with no thread writing or waiting."""
        # Entered by `with` alone: a handler cannot raise between the acquisition of a lock of C
        # code and the block (CPython 3.11 to 3.13; 3.14 once python/cpython#148874 is fixed there).
        self._lock = threading.Lock()
        # The first one has the turn, unless it has ended. A thread may be interrupted between any
        # two changes, so each method first completes any unfinished change (`_pass_on`).
        self._line: deque[QueueTurn] = deque()

    def try_enter(self, turn: QueueTurn) -> bool:
        """Take the turn if no thread has it or waits for it; return whether it did."""
        with self._lock:
            if self._line:
                self._pass_on()
                if self._line:
                    return False
            self._line.append(turn)
            return True

    def enter(self, turn: QueueTurn, seconds: float, *, urgent: bool = False) -> bool:
        """Wait up to *seconds* for the turn, before all others if *urgent*; return whether it came.

        Whether or not it came, and if this raises, *turn* must be ended as the module docstring
        says.
        """
        came = turn.came = threading.Lock()
        with self._lock:
            came.acquire()
            if urgent:
                self._line.insert(1, turn)
            else:
                self._line.append(turn)
        end = time.monotonic() + seconds
        while ahead := self._ahead(turn):
            left = end - time.monotonic()
            if left <= 0:
                return False
            # Woken when the turn comes. The pauses are for a thread that was interrupted before it
            # could wake the next one. They grow with the queue: one of its first threads polls in
            # time, and a thousand cost no more than a few.
            came.acquire(timeout=min(left, ahead * _LOOK_SECONDS))
        return True

    def leave(self, turn: QueueTurn) -> None:
        """Pass the turn on to the next thread, or stop waiting; *turn* has ended."""
        with self._lock:
            line = self._line
            if line and line[0] is turn:  # as almost always, so it is worth not searching
                line.popleft()
            elif turn in line:
                line.remove(turn)
            if line:
                self._pass_on()

    def _ahead(self, turn: QueueTurn) -> int:
        """Return how many threads come before *turn*."""
        with self._lock:
            self._pass_on()
            return self._line.index(turn)

    def _pass_on(self) -> None:
        """Wake the first thread that still needs the turn."""
        line = self._line
        while line and line[0].over:
            line.popleft()
        came = line[0].came if line else None
        if came is not None and came.locked():
            came.release()


KINDS = {Kind.VALUE: 1, Kind.GROUP: 2, Kind.SERVICE: 3}

_LOG_CHANGE = "INSERT INTO change (root, kind, scope, name) VALUES (?, ?, ?, ?)"
_FORGET_CHANGES = "DELETE FROM change WHERE rev <= ?"
_KEPT_CHANGES = 4096
_FORGET_EVERY = 1024
_LOOK_AT_LOG_EVERY = 64
_LONG_LOG_BYTES = 8 * LOG_BYTES
"""The size above which a warning names what may keep the log from being copied back."""
_LOOK_AT_FILE_SECONDS = 0.02


class Transaction:
    """A write transaction under way."""

    __slots__ = ("_obsolete", "changed", "execute")

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Execute statements on *connection*."""
        self.execute = connection.execute
        self.changed = False
        self._obsolete: list[str] = []

    def change(self, root: int, kind: Kind, scope: bytes, name: bytes) -> int:
        """Record that something changes, and return its revision.

        The log of changes is also the counter: its last row is never deleted, so that no revision
        occurs twice.
        """
        self.changed = True
        rev = self.execute(_LOG_CHANGE, (root, KINDS[kind], scope, name)).lastrowid or 0
        if not rev % _FORGET_EVERY:
            self.execute(_FORGET_CHANGES, (rev - _KEPT_CHANGES,))
        return rev

    def remove_after_commit(self, file: str) -> None:
        """Remove *file* once the transaction is committed; keep it if that is undone."""
        self._obsolete.append(file)

    def remove_files(self) -> None:
        """Remove the files, after the commit. One that cannot be removed stays."""
        for file in self._obsolete:
            try:
                Path(file).unlink()
            except OSError as error:
                if raised_by_program(error):
                    raise


class Database:
    """An open database file. Thread-safe.

    Attributes:
        look_at: The monotonic time from which on a read must look again whether the file was
            replaced. Written by any thread.
    """

    def __init__(
        self, file: Path, connections: Connections, *, seconds: float, notify: Callable[[], None]
    ) -> None:
        """Wait up to *seconds* for the lock; call *notify* after each commit of a change."""
        self.file = file
        self.connections = connections
        self._seconds = seconds
        self._notify = notify
        self._queue = WriteQueue()
        self._log = file.with_name(f"{file.name}-wal")
        # How many commits there were after the first. Written by the thread whose turn it is.
        self._commits = -1
        # Sizes of the log, for `_keep_log_short`. Written by the same thread.
        self._look_at_bytes = LOG_BYTES
        self._warn_at_bytes = _LONG_LOG_BYTES
        self.look_at = 0.0

    def backoff(self) -> LockBackoff:
        """Return the time limit of one operation, starting now."""
        return LockBackoff(self._seconds)

    def read(
        self, work: Callable[[sqlite3.Connection], T], backoff: LockBackoff | None = None
    ) -> T:
        """Return the result of *work*, which only reads.

        Raises:
            sqlite3.OperationalError: Another connection held the lock all the time (`is_busy`).
        """
        try:
            return self._read(work)
        except sqlite3.Error as error:
            self._raise_unless_busy(error)
        return (backoff or self.backoff()).through(partial(self._read, work))

    def write(
        self,
        work: Callable[[Transaction], T],
        *,
        durable: bool = False,
        backoff: LockBackoff | None = None,
        urgent: bool = False,
    ) -> T:
        """Do *work* in one transaction and return what it returns; if it raises, undo it.

        Threads of this process write in the order of their calls, *urgent* ones first. With
        *durable* the commit outlives a power failure with any settings.

        Raises:
            sqlite3.OperationalError: Another process was writing all the time (`is_busy`).
                Nothing was done.
            UnavailableError: The turn of this thread did not come. Nothing was done.
            OutcomeUnknownError: The commit failed in a way that may have left it on the disk.
        """
        queue, turn = self._queue, QueueTurn()
        try:
            if not queue.try_enter(turn):
                backoff = backoff or self.backoff()
                if not queue.enter(turn, backoff.seconds_left(), urgent=urgent):
                    raise UnavailableError(no_turn(self.file))
            try:
                return self._write(work, durable)
            except sqlite3.Error as error:
                if is_full(error):
                    self._reuse_log(error)
                else:
                    self._raise_unless_busy(error)
            return (backoff or self.backoff()).through(partial(self._write, work, durable))
        finally:
            turn.over = True
            queue.leave(turn)

    @contextmanager
    def between_writes(self) -> Generator[None]:
        """Keep all threads of this process from writing transactions in the block.

        Raises:
            UnavailableError: The turn of this thread did not come.
        """
        queue, turn = self._queue, QueueTurn()
        try:
            if not queue.enter(turn, self._seconds):
                raise UnavailableError(no_turn(self.file))
            yield
        finally:
            turn.over = True
            queue.leave(turn)

    def abandon(self) -> None:
        """In a forked child: do not wait for threads of the parent."""
        self._queue = WriteQueue()

    def connection(self, slot: LocalConnection) -> sqlite3.Connection:
        """Return the connection of *slot*, whose lock is held, for an attempt to read.

        Looking at the file costs as much as a tenth of a read, so a replacement is noticed only
        some milliseconds later. Writes look each time.
        """
        if time.monotonic() >= self.look_at:
            self.connections.check_file(slot)
            self.look_at = time.monotonic() + _LOOK_AT_FILE_SECONDS
        return slot.connection or self.connections.open(slot)

    def _raise_unless_busy(self, error: sqlite3.Error) -> None:
        """Return if another connection held the lock; otherwise raise *error*, or its cause."""
        self.connections.refuse()
        if not is_busy(error):
            raise error

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        slot = self.connections.slot()
        with slot.lock:
            connection = self.connection(slot)
            try:
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.rollback()

    def _write(self, work: Callable[[Transaction], T], durable: bool) -> T:  # noqa: FBT001  by position, for every write passes it
        slot = self.connections.slot()
        with slot.lock:
            connection = slot.connection or self.connections.open(slot)
            if connection.in_transaction:
                connection.rollback()  # which failed when that transaction was to end
            transaction = Transaction(connection)
            if durable:
                connection.execute("PRAGMA synchronous = FULL")
            try:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    if self.connections.check_files(slot):
                        self._check_log(connection)
                    result = work(transaction)
                    self._commit(connection)
            finally:
                if durable:
                    connection.execute(f"PRAGMA synchronous = {self.connections.synchronous}")
            transaction.remove_files()
            if transaction.changed:
                self._notify()
            self._keep_log_short(connection, slot.log_bytes)
        return result

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if is_full(error):
                raise
            raise translate_commit(error, self.file) from error

    def _reuse_log(self, error: sqlite3.Error) -> None:
        """Copy the log back, so that the next write starts it again in the space that it has.

        Raises:
            sqlite3.Error: *error*, because that is not possible either.
        """
        slot = self.connections.slot()
        with slot.lock:
            connection = slot.connection or self.connections.open(slot)
            try:
                if self._checkpoint(connection):
                    return
            except sqlite3.Error as refusal:
                raise error from refusal
        raise error

    def _keep_log_short(self, connection: sqlite3.Connection, log_bytes: int) -> None:
        """Copy the log back if it is long; it had *log_bytes* before the write."""
        self._commits += 1
        if self._commits % _LOOK_AT_LOG_EVERY and log_bytes < self._look_at_bytes:
            return
        # A committed write is done, even if this fails.
        try:
            size = self._log.stat().st_size
            self._look_at_bytes = size + LOG_BYTES
            if size > min(LOG_BYTES, _free_bytes(self.file)):
                self._warn_if_long(size, is_copied=self._checkpoint(connection))
        except (sqlite3.Error, OSError) as error:
            if raised_by_program(error):
                raise

    def _warn_if_long(self, size: int, *, is_copied: bool) -> None:
        if is_copied:
            self._warn_at_bytes = _LONG_LOG_BYTES
        elif size > self._warn_at_bytes:
            self._warn_at_bytes = 2 * size
            _log.warning(
                "%s has grown to %d MB: a program, such as a backup or an sqlite3 shell, keeps a"
                " read transaction open; find it with `fuser %s`",
                self._log,
                size // 10**6,
                self.file,
            )

    def _checkpoint(self, connection: sqlite3.Connection) -> bool:
        """Copy the write-ahead log back while this connection excludes every writer.

        SQLite before 3.51.3 can corrupt the file if a writer restarts the log while another
        connection checkpoints it. No mode of checkpointing excludes that by itself: those that
        request the writers' lock continue without it when they do not get it.

        Returns:
            Whether all of it was copied, and the log starts again with the next write. An open read
            transaction keeps what it may still read.
        """
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            frames, copied = self._copy_log_back()
        return copied == frames

    def _check_log(self, connection: sqlite3.Connection) -> None:
        """Raise if the log became shorter although it is in use; *connection* is the writer.

        Another program may have copied all of it back and cut it, which is no loss.

        Raises:
            StoreError: It did.
            sqlite3.OperationalError: A part that is in use cannot be read.
        """
        page_bytes: int = connection.execute("PRAGMA page_size").fetchone()[0]
        frames, _ = self._copy_log_back()
        self.connections.refuse_short_log(frames, page_bytes)

    def _copy_log_back(self) -> tuple[int, int]:
        """Copy the log back while the caller excludes every writer.

        Returns:
            How many frames it has, and how many of them are in the database now.
        """
        copier = self.connections.connect()
        try:
            _, frames, copied = copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            return frames, copied
        finally:
            copier.close()


def _free_bytes(file: Path) -> int:
    system = os.statvfs(file)
    return system.f_bavail * system.f_frsize
