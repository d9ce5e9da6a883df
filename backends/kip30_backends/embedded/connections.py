"""One connection per thread, for as long as the thread lives and the database is open."""

import ctypes
import sqlite3
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kip30.errors import ClosedError, Kip30Error, LifecycleError
from kip30_backends.embedded.patience import Patience

LOG_BYTES = 4 * 1024 * 1024
"""The size of the write-ahead log from which on it is copied back and begun anew."""


class Slot:
    """The connection of one thread. The lock is there for `Connections.close`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Own *connection*."""
        self.connection = connection
        self.lock = threading.Lock()

    def close(self) -> None:
        """Close the connection, after what it is doing just now."""
        with self.lock:
            self.connection.close()


class Tie:
    """What a thread holds its slot by; when the thread ends, so does the connection.

    Nothing else refers to it for long, so that it goes with the thread. The slot may stay: the
    traceback of an error that somebody keeps refers to it.
    """

    def __init__(self, slot: Slot) -> None:
        """Tie *slot* to the thread that keeps this."""
        self.slot = slot

    def __del__(self) -> None:
        """Close what the thread has left behind.

        Whoever holds the lock now is closing it, or is a thread that the end of the
        interpreter stopped in the middle of its work and that will never let go.
        """
        if self.slot.lock.acquire(blocking=False):
            self.slot.connection.close()
            self.slot.lock.release()


class Connections:
    """All connections of this process to one database file. Thread-safe."""

    def __init__(self, file: Path, *, seconds: float, synchronous: str) -> None:
        """Connect to *file* when asked to, waiting up to *seconds* for others."""
        self.synchronous = synchronous
        self._uri = f"{file.as_uri()}?mode=rw"
        self._seconds = seconds
        self._refusal: Kip30Error | None = None
        self._local = threading.local()
        self._ties: weakref.WeakSet[Tie] = weakref.WeakSet()
        self._lock = threading.Lock()

    def slot(self) -> Slot:
        """Return this thread's connection and its lock.

        Raises:
            ClosedError: The database was closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        try:
            slot: Slot = self._local.tie.slot
        except AttributeError:
            return self._open_slot()
        return slot

    def refuse(self) -> None:
        """Raise what every use is answered with, if there is such a thing.

        Raises:
            ClosedError: The database was closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        if self._refusal is not None:
            raise type(self._refusal)(*self._refusal.args)

    def connect(self) -> sqlite3.Connection:
        """Return a connection that belongs to no thread."""
        connection = sqlite3.connect(
            self._uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        synchronous = f"PRAGMA synchronous = {self.synchronous}"
        with _closed_on_failure(connection):
            Patience(self._seconds).through(lambda: connection.execute(synchronous))
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        return connection

    def close(self) -> None:
        """Close all connections, after what they are doing just now."""
        self._refusal = ClosedError("the backend is closed")
        with self._lock:
            ties = list(self._ties)
        self._local = threading.local()
        for tie in ties:
            tie.slot.close()

    def pinned(self) -> list[object]:
        """Before a fork: return what must not be cleared away in the child."""
        with self._lock:
            return list(self._ties)

    def abandon(self) -> None:
        """In a forked child: never touch the parent's connections, not even to close them.

        Closing one could remove the write-ahead log under the parent.
        """
        for tie in self._ties:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(tie))
        self._refusal = LifecycleError("opened before a fork: open another one in the child")
        self._local = threading.local()
        self._ties = weakref.WeakSet()
        self._lock = threading.Lock()

    def _open_slot(self) -> Slot:
        self.refuse()
        connection = self.connect()
        with _closed_on_failure(connection), self._lock:
            self.refuse()
            tie = self._local.tie = Tie(Slot(connection))
            self._ties.add(tie)
        return tie.slot


@contextmanager
def _closed_on_failure(connection: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise
