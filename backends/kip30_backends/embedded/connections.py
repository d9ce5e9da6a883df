"""One connection per thread, for as long as the thread lives and the database is open.

A thread holds the lock of its slot during each attempt at a transaction, and only then. So a fork
can wait for all attempts and close all connections; the threads connect again (see `fork_safety`).

The log and its shared index exist as long as a connection is open, so while this process has one
they stay the same files. If one is removed, another process makes a new one, and both overwrite
what the other has written. So they are looked at together with the database file.
"""

import ctypes
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from kip30.driver.kit.gate import CLOSED, FORKED
from kip30.errors import (
    ClosedError,
    Kip30Error,
    LifecycleError,
    StoreError,
    UnavailableError,
)
from kip30_backends.embedded import fork_safety
from kip30_backends.embedded.errors import is_busy
from kip30_backends.embedded.fork_safety import PinnedInode, inode_of

LOG_BYTES = 4 * 1024 * 1024
"""The size above which the write-ahead log is checkpointed, so that it restarts."""

_SETTLED_NS = 3 * 10**9
"""Age, in ns, of a change of a directory after which no later change can have the same time."""

_LOG_HEAD_BYTES = 32
_FRAME_HEAD_BYTES = 24

_Inodes = tuple[fork_safety.Inode | None, fork_safety.Inode | None]

T = TypeVar("T")

_log = logging.getLogger(__name__)


_FIRST = 0.0002
# Short, because a process that writes one transaction after another leaves only short gaps, and
# one thread of a process asks at a time.
_LONGEST = 0.002


class LockBackoff:
    """The time left for one operation."""

    def __init__(self, seconds: float) -> None:
        """Allow *seconds* from now."""
        self._end = time.monotonic() + seconds
        self._step = _FIRST

    def pause(self, complaint: str) -> None:
        """Wait for a short backoff.

        Raises:
            UnavailableError: No time is left; the message is *complaint*. Nothing was done.
        """
        if self.seconds_left() <= 0:
            raise UnavailableError(complaint)
        self._rest()

    def through(self, attempt: Callable[[], T]) -> T:
        """Return the result of *attempt*, retried while another connection holds the lock.

        Raises:
            sqlite3.OperationalError: One held it the whole time. Nothing was done.
        """
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or self.seconds_left() <= 0:
                    raise
            self._rest()

    def seconds_left(self) -> float:
        """Return the time left; 0 or less once there is none."""
        return self._end - time.monotonic()

    def _rest(self) -> None:
        pause = self._step * (0.5 + random.random())  # noqa: S311  only jitter
        time.sleep(max(0.0, min(self.seconds_left(), pause)))
        self._step = min(_LONGEST, self._step * 1.5)


class LocalConnection:
    """The connection of one thread.

    Attributes:
        lock: Held by the thread during an attempt, and by others that close the connection.
        connection: None before its first use, after a fork and after `close`. Guarded by `lock`.
        companions: Device and inode of the log and its index since the connection was opened.
        log_bytes: The size of the log when this thread last looked at it.
    """

    def __init__(self) -> None:
        """Start without a connection."""
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self.companions: _Inodes = (None, None)
        self.log_bytes = 0
        self._pid = os.getpid()

    def connect(self, connection: sqlite3.Connection, companions: _Inodes) -> None:
        """Own *connection* until `close`; `lock` is held.

        A connection that is not closed explicitly is never finalised: in a process that was
        forked without hooks that would close it, and delete the log of the parent.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self.companions, self.log_bytes = companions, 0
        self.connection = connection

    def close(self) -> None:
        """Close the connection, unless it is the parent's; `lock` is held."""
        if self.connection is None or os.getpid() != self._pid:
            return
        connection, self.connection = self.connection, None
        connection.close()
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(connection))


class ThreadBinding:
    """Ties a slot to its thread: when the thread ends, the connection is closed.

    Only the thread refers to it for long, so that both end together. The slot may stay: the
    traceback of a stored error refers to it.
    """

    slot: LocalConnection | None = None

    def __init__(self, slot: LocalConnection, slots: dict[LocalConnection, None]) -> None:
        """Tie *slot*, which is one of *slots*, to the thread that keeps this."""
        self._slots = slots
        self.slot = slot

    def __del__(self) -> None:
        """Close what the ended thread has left open.

        A lock that is taken belongs to a thread that closes the connection, or to one that the
        end of the interpreter stopped in the middle of its work and that will never release it.
        """
        slot = self.slot
        if slot is None:
            return  # a signal handler raised before it was set
        if not slot.lock.locked():
            with slot.lock:
                slot.close()
        self._slots.pop(slot, None)


class Connections:
    """All connections of this process to one database file. Thread-safe.

    Attributes:
        inode: Device and inode of the file, which must not change while it is open.
    """

    def __init__(self, file: Path, *, synchronous: str) -> None:
        """Connect to *file* when asked to.

        Raises:
            OSError: There is no such file.
        """
        self.synchronous = synchronous
        self._file = str(file)
        self._pin = PinnedInode(self._file)
        self.inode = self._pin.inode
        self._log_file, self._index = f"{file}-wal", f"{file}-shm"
        self._folder = str(file.parent)
        # Of the folder, when all files were as they have to be and it had not changed for long.
        self._settled: tuple[int, int, int] | None = None
        self._uri = f"{file.as_uri()}?mode=rw"
        self._refusal: Kip30Error | None = None
        self._replacement_was_logged = False
        self._local = threading.local()
        # Held to add a slot, by `close`, and during a fork. Never taken with a slot's lock held.
        self._lock = threading.Lock()
        self._slots: dict[
            LocalConnection, None
        ] = {}  # keys alone, in the order in which they were added
        fork_safety.add_store(self)

    def slot(self) -> LocalConnection:
        """Return this thread's slot.

        Raises:
            ClosedError: The database was closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        try:
            slot: LocalConnection = self._local.slot
        except AttributeError:
            return self._new_slot()
        return slot

    def open(self, slot: LocalConnection) -> sqlite3.Connection:
        """Connect *slot*, whose lock is held and which a fork may have closed.

        Raises:
            ClosedError: The database was closed.
            LifecycleError: It belongs to the parent of this forked process.
            StoreError: Another file is in its place.
            sqlite3.OperationalError: Another process is starting or ending its use (`is_busy`).
        """
        self.refuse()
        self.check_file()
        connection = self.connect()
        try:
            opened = self._opened_companions(connection)
            # SQLite shares one index among all connections of the process to this file.
            self._check_companions(self._in_use() or opened)
            slot.connect(connection, opened)
        except BaseException:  # or a signal handler raised
            slot.connection = None
            connection.close()
            raise
        return connection

    def _opened_companions(self, connection: sqlite3.Connection) -> _Inodes:
        connection.execute("PRAGMA schema_version")  # opens, or makes, the log and its index
        if _inode_or_none(self._log_file) is None:
            # A copy that was made by VACUUM INTO has no log until WAL mode is set on it.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA schema_version")
        return _inode_or_none(self._log_file), _inode_or_none(self._index)

    def refuse(self) -> None:
        """Raise if the database may not be used.

        Raises:
            ClosedError: The database was closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        if self._refusal is not None:
            raise type(self._refusal)(*self._refusal.args)

    @property
    def file(self) -> Path:
        """The database."""
        return Path(self._file)

    def check_file(self, slot: LocalConnection | None = None) -> None:
        """Raise unless all paths still name the files that were opened.

        Args:
            slot: The slot of this thread, whose lock is held.

        Raises:
            StoreError: A file was replaced or removed.
        """
        if _inode_or_none(self._file) != self.inode:
            self._fail(f"{self._file} was replaced or removed")
        if slot is not None and slot.connection is not None:
            self._check_companions(slot.companions)
        else:
            self._check_companions_of_others()

    def check_files(self, slot: LocalConnection) -> bool:
        """Check all files before a write, and return whether the log became shorter.

        Nothing was removed from a directory that was last changed long ago, so looking at that
        and at the log is enough. Its mtime would not do: systemd-tmpfiles puts that back. The lock
        of *slot* is held, and it has a connection.

        Raises:
            StoreError: A file was replaced or removed.
        """
        folder = os.stat(self._folder)  # noqa: PTH116  as in `_inode_or_none`
        seen = folder.st_dev, folder.st_ino, folder.st_ctime_ns
        if seen != self._settled:
            self.check_file(slot)
            if time.time_ns() - folder.st_ctime_ns > _SETTLED_NS:
                self._settled = seen
        try:
            size = os.stat(self._log_file).st_size  # noqa: PTH116  as above
        except FileNotFoundError:
            self._fail(f"{self._log_file} was replaced or removed")
        before, slot.log_bytes = slot.log_bytes, size
        return size < min(before, LOG_BYTES)

    def refuse_short_log(self, frames: int, page_bytes: int) -> None:
        """Raise if the log is shorter than *frames* of it, which are in use.

        Raises:
            StoreError: It was cut short.
        """
        size = os.stat(self._log_file).st_size  # noqa: PTH116  as above
        if frames and size < _LOG_HEAD_BYTES + frames * (_FRAME_HEAD_BYTES + page_bytes):
            self._fail(f"{self._log_file} was cut short")

    def companions_in_use(self) -> _Inodes | None:
        """Return what an open connection of this has found; None without such a connection."""
        for slot in list(self._slots):
            if slot.connection is not None:
                return slot.companions
        return None

    def _in_use(self) -> _Inodes | None:
        same = (each for each in fork_safety.open_stores() if each.inode == self.inode)
        return next(filter(None, (each.companions_in_use() for each in same)), None)

    def _check_companions_of_others(self) -> None:
        """Check what another thread has open; if it closes that meanwhile, the files may go."""
        for slot in list(self._slots):
            connection = slot.connection
            if connection is not None:
                wrong = self._wrong(slot.companions)
                if wrong and slot.connection is connection:
                    self._fail(f"{wrong} was replaced or removed")
                return

    def _check_companions(self, opened: _Inodes) -> None:
        if wrong := self._wrong(opened):
            self._fail(f"{wrong} was replaced or removed")

    def _wrong(self, opened: _Inodes) -> str | None:
        for name, inode in zip((self._log_file, self._index), opened, strict=True):
            if inode is None or _inode_or_none(name) != inode:
                return name
        return None

    def _fail(self, what: str) -> NoReturn:
        message = f"{what} while it was open: start again"
        if not self._replacement_was_logged:
            # Listeners have no other way to learn that they will no longer be called.
            self._replacement_was_logged = True
            _log.error(message)
        raise StoreError(message)

    def connect(self) -> sqlite3.Connection:
        """Return a connection of no slot; the caller closes it before it releases its own slot."""
        connection = sqlite3.connect(
            self._uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close all connections, each after its current work."""
        self._refusal = self._refusal or ClosedError(CLOSED)
        with self._lock:
            slots = list(self._slots)
            self._local = threading.local()
            for slot in slots:
                with slot.lock:
                    slot.close()
        self._pin.close()
        fork_safety.remove_store(self)

    def pause(self, pause: fork_safety.Pause) -> bool:
        """Close all connections and open none until *pause* ends; false if one is still in use.

        While `_lock` is held, only this thread's own attempt can hold its slot. Then a signal
        handler is forking, and waiting for the end of the attempt would be useless.
        """
        if not pause.hold(self._lock):
            return False
        mine = self._own_slot()
        busy = mine is not None and mine.lock.locked()
        others = [slot for slot in list(self._slots) if not (busy and slot is mine)]
        closed = [_closed(slot, pause) for slot in others]
        return all(closed) and not busy

    def is_in_use(self) -> bool:
        """Return whether any connection is open, or about to be."""
        return any(slot.connection or slot.lock.locked() for slot in list(self._slots))

    def abandon(self) -> None:
        """In a forked child: never touch the parent's connections, not even to close them.

        Closing one could remove the write-ahead log under the parent. If a signal handler forked,
        it may return into a transaction: no statement of that may be executed here.
        """
        mine = self._own_slot()
        if mine is not None and mine.connection is not None:
            mine.connection.set_authorizer(_deny)
        self._refusal = LifecycleError(FORKED)
        self._local = threading.local()
        self._lock = threading.Lock()

    def _own_slot(self) -> LocalConnection | None:
        slot: LocalConnection | None = getattr(self._local, "slot", None)
        return slot

    def _new_slot(self) -> LocalConnection:
        self.refuse()
        with self._lock:
            self.refuse()
            slot = LocalConnection()
            self._slots[slot] = None
            self._local.binding = ThreadBinding(slot, self._slots)
            # Last: a thread that a signal handler interrupts has no slot, or one with a binding.
            self._local.slot = slot
        return slot


def _closed(slot: LocalConnection, pause: fork_safety.Pause) -> bool:
    """Close *slot* and keep its thread from connecting until *pause* ends."""
    if not pause.hold(slot.lock):
        return False
    slot.close()
    return True


def _inode_or_none(file: str) -> fork_safety.Inode | None:
    try:
        return inode_of(os.stat(file))  # noqa: PTH116  often, and a Path costs as much again
    except FileNotFoundError:
        return None


def _deny(*_action: object) -> int:
    return sqlite3.SQLITE_DENY
