"""One connection per thread, for as long as the thread lives and the database is open.

A thread holds the lock of its slot during each attempt at a transaction, and only then. So a fork
can wait for all attempts and close all connections; the threads connect again (see `fork_safety`).
"""

import ctypes
import logging
import os
import sqlite3
import threading
from pathlib import Path

from kip30.driver.kit.gate import CLOSED, FORKED
from kip30.errors import ClosedError, Kip30Error, LifecycleError, StoreError
from kip30_backends.embedded import fork_safety
from kip30_backends.embedded.fork_safety import Pin, inode_of

LOG_BYTES = 4 * 1024 * 1024
"""The size above which the write-ahead log is checkpointed, so that it restarts."""

_log = logging.getLogger(__name__)


class Slot:
    """The connection of one thread.

    Attributes:
        lock: Held by the thread during an attempt, and by others that close the connection.
        connection: None before its first use, after a fork and after `close`. Guarded by `lock`.
    """

    def __init__(self) -> None:
        """Start without a connection."""
        self.lock = threading.Lock()
        self.connection: sqlite3.Connection | None = None
        self._pid = os.getpid()

    def connect(self, connection: sqlite3.Connection) -> None:
        """Own *connection* until `close`; `lock` is held.

        A connection that is not closed explicitly is never finalised: in a process that was
        forked without hooks that would close it, and delete the log of the parent.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
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

    slot: Slot | None = None

    def __init__(self, slot: Slot, slots: set[Slot]) -> None:
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
        self._slots.discard(slot)


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
        self._pin = Pin(self._file)
        self.inode = self._pin.inode
        self._uri = f"{file.as_uri()}?mode=rw"
        self._refusal: Kip30Error | None = None
        self._replacement_was_logged = False
        self._local = threading.local()
        # Held to add a slot, by `close`, and during a fork. Never taken with a slot's lock held.
        self._lock = threading.Lock()
        self._slots: set[Slot] = set()
        fork_safety.add_store(self)

    def slot(self) -> Slot:
        """Return this thread's slot.

        Raises:
            ClosedError: The database was closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        try:
            slot: Slot = self._local.slot
        except AttributeError:
            return self._new_slot()
        return slot

    def open(self, slot: Slot) -> sqlite3.Connection:
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
            slot.connect(connection)
        except BaseException:  # a signal handler raised
            slot.connection = None
            connection.close()
            raise
        return connection

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

    def check_file(self) -> None:
        """Raise unless the path still names the file that was opened.

        Raises:
            StoreError: The file was replaced or removed.
        """
        try:
            if _inode(self._file) == self.inode:
                return
        except FileNotFoundError:
            pass
        message = f"{self._file} was replaced or removed while it was open: start again"
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

    def _own_slot(self) -> Slot | None:
        slot: Slot | None = getattr(self._local, "slot", None)
        return slot

    def _new_slot(self) -> Slot:
        self.refuse()
        with self._lock:
            self.refuse()
            slot = Slot()
            self._slots.add(slot)
            self._local.binding = ThreadBinding(slot, self._slots)
            # Last: a thread that a signal handler interrupts has no slot, or one with a binding.
            self._local.slot = slot
        return slot


def _closed(slot: Slot, pause: fork_safety.Pause) -> bool:
    """Close *slot* and keep its thread from connecting until *pause* ends."""
    if not pause.hold(slot.lock):
        return False
    slot.close()
    return True


def _inode(file: str) -> fork_safety.Inode:
    return inode_of(os.stat(file))  # noqa: PTH116  before each write, and a Path costs as much again


def _deny(*_action: object) -> int:
    return sqlite3.SQLITE_DENY
