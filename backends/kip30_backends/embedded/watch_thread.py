"""The thread that notices changes: one of this process for each database file.

It waits for writers, reads the changes once, and delivers them to those open stores whose watches
they concern. It also checks which sessions live. With a thread for each open store, each of two
hundred in one process would be woken by each commit of any of them, and read.

It runs while one of the stores has a session or a watch. None of its steps waits long, so none
delays the others. Other threads renew the sessions (`session.Renewal`).
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.thread_start import join_others, started
from kip30.driver.kit.watch import NOTHING_DELIVERED
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.embedded.change_signal import SignalReader
from kip30_backends.embedded.database import Database
from kip30_backends.embedded.fork_safety import Inode
from kip30_backends.embedded.liveness import LivenessCheck
from kip30_backends.embedded.liveness_locks import held_off
from kip30_backends.embedded.session import Sessions
from kip30_backends.embedded.watch import ChangeLog, Watches, changes_since

_log = logging.getLogger(__name__)

_LONGEST = 0.25
_AFTER_TROUBLE = 0.02


class ThreadKey(NamedTuple):
    """Properties in which stores that share a thread agree.

    Attributes:
        pid: The process: a child that was forked without hooks inherits the threads of its parent.
        file: The database.
        poll_seconds: How often the thread polls; None if it is notified.
    """

    pid: int
    file: Inode
    poll_seconds: float | None


class WatchedStore(NamedTuple):
    """The parts of one open store that the thread works on. None of them refers to the backend."""

    database: Database
    sessions: Sessions
    watches: Watches
    liveness_check: LivenessCheck


class WatchClient:
    """One open store's share in the thread of its file. Thread-safe.

    Attributes:
        store: The parts of the store that the thread works on.
        make_reader: Makes the reader that the thread waits on, if this store starts the thread.
        lock: Held by the thread while it uses `store`. A sink may close the store, so it is
            reentrant.
        is_closed: Whether the thread must no longer use `store`. Set once, under the thread's
            lock.
        orphaned: The function that closes the store once nothing refers to it; None before.
    """

    def __init__(
        self,
        poll_seconds: float | None,
        store: WatchedStore,
        make_reader: Callable[[], SignalReader],
    ) -> None:
        """Share the thread of the file of *store*, which polls if *poll_seconds* is not None."""
        self.store = store
        self.make_reader = make_reader
        self.lock: threading.RLock = threading.RLock()
        self.is_closed = False
        self.orphaned: Callable[[], None] | None = None
        inode = store.database.connections.inode
        self._thread = _joined(ThreadKey(os.getpid(), inode, poll_seconds), self)

    def has_work(self) -> bool:
        """Return whether there is a session or a watch, so that the thread is needed."""
        store = self.store
        return not self.is_closed and (store.sessions.session is not None or bool(store.watches))

    def wake(self) -> None:
        """Make the thread check for work, starting it if there is none.

        Raises:
            ClosedError: The backend is closed.
            UnavailableError: There is no thread, and the system cannot start one.
        """
        self._thread.wake(self)

    def stop(self) -> None:
        """Wait until the thread no longer uses this store, unless this is called on it."""
        self._thread.leave(self)

    def is_the_thread(self) -> bool:
        """Return whether the caller is the thread."""
        return self._thread.is_this_thread()

    def leave_orphaned(self, close: Callable[[], None]) -> bool:
        """Let the thread call *close*; return whether there is a thread to do it."""
        self.orphaned = close
        return self._thread.rouse()

    def abandon(self) -> None:
        """In a forked child: there is no thread here."""
        self.is_closed = True
        self.lock = threading.RLock()
        self._thread.abandon()


class WatchThread:
    """Starts, feeds and ends the thread of one file. Thread-safe."""

    def __init__(self, key: ThreadKey) -> None:
        """Start no thread yet, and serve no store."""
        # The key of all clients, and the clients. Replaced while forks are held off.
        self._key = key
        self.clients: tuple[WatchClient, ...] = ()
        # The thread and its reader; both are None while there is no work. Written under the lock,
        # which is reentrant: a finalizer of another store may run inside of it (`rouse`).
        self._reader: SignalReader | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        # The revision up to which all clients have read, or know that they need not. Written by
        # the thread, like the client whose check of liveness serves for all.
        self._seen = NOTHING_DELIVERED
        self._checker: WatchClient | None = None

    def wake(self, client: WatchClient) -> None:
        """Make the thread check for work of *client*; see `WatchClient.wake`."""
        with self._lock:
            if client.is_closed:
                raise ClosedError(CLOSED)
            if not self.rouse():
                self._start(client.make_reader())

    def rouse(self) -> bool:
        """End the wait of the thread; false if there is none."""
        with self._lock:
            if self._reader is not None:
                self._reader.wake()
            return self._reader is not None

    def leave(self, client: WatchClient) -> None:
        """Serve *client* no longer; wait until it is not served, unless called on the thread."""
        with self._lock:
            client.is_closed = True
            thread = self._thread
        with held_off.lock:
            self.clients = tuple(one for one in self.clients if one is not client)
            is_last = not self.clients
            if is_last and _threads.get(self._key) is self:
                del _threads[self._key]
        self.rouse()
        if self.is_this_thread():
            return
        with client.lock:
            pass
        if is_last:
            join_others(thread)

    def is_this_thread(self) -> bool:
        """Return whether the caller is the thread."""
        return self._thread is threading.current_thread()

    def abandon(self) -> None:
        """In a forked child: there is no thread here. Idempotent."""
        self._lock = threading.RLock()
        self.clients = ()
        _threads.pop(self._key, None)
        reader, self._reader, self._thread = self._reader, None, None
        if reader is not None:
            reader.close()

    def _start(self, reader: SignalReader) -> None:
        """Start the thread. If this is interrupted, it ends before it uses *reader*."""
        try:
            thread = threading.Thread(
                target=self._run, args=(reader,), name="kip30-embedded", daemon=True
            )
            running = started(thread)
            if running:
                self._reader, self._thread = reader, thread
        except BaseException:  # such as KeyboardInterrupt
            self._reader = self._thread = None
            reader.close()
            raise
        if not running:
            reader.close()
            raise UnavailableError("the system has no thread to spare: nothing was done")

    def _run(self, reader: SignalReader) -> None:
        closed: Collection[str] | None = None
        while self._is_needed(reader):
            well = self._beat(closed, reader)
            closed = reader.wait(self._pause(reader) if well else _AFTER_TROUBLE)

    def _is_needed(self, reader: SignalReader) -> bool:
        self._close_orphaned()
        with self._lock:
            is_the_thread = self._reader is reader
            if is_the_thread and any(client.has_work() for client in self.clients):
                return True
            if is_the_thread:
                self._reader = self._thread = None
            reader.close()
        self._close_orphaned()  # those that counted on this thread meanwhile
        return False

    def _close_orphaned(self) -> None:
        for client in self.clients:
            if client.orphaned is not None:
                client.orphaned()

    def _beat(self, closed: Collection[str] | None, reader: SignalReader) -> bool:
        """Check liveness, and deliver the changes; false if that must be tried again."""
        clients = self.clients
        well = True
        if any(client.store.watches.on_claims for client in clients):
            well = _tried(partial(self._look, clients, closed, reader.look_seconds))
        watching = [client for client in clients if client.store.watches]
        return _tried(partial(self._deliver, watching)) and well

    def _look(
        self, clients: Sequence[WatchClient], closed: Collection[str] | None, every: float
    ) -> None:
        """Check which sessions of the database live, by the check of one of *clients*."""
        checker = self._checker
        if checker is None or checker.is_closed:
            checker = self._checker = clients[0]
        with checker.lock:
            if not checker.is_closed:
                checker.store.liveness_check.look(closed, every)

    def _deliver(self, clients: Sequence[WatchClient]) -> None:
        """Read the changes, and make the *clients* that they concern deliver them.

        A single one reads for itself, so that nothing is read twice.
        """
        log = self._log(clients) if len(clients) > 1 else None
        failure: BaseException | None = None
        for client in clients:
            try:
                with client.lock:
                    watches = client.store.watches
                    if not client.is_closed and (log is None or not watches.skip(log)):
                        watches.deliver()
            except Exception as error:  # noqa: BLE001  the other stores get their states
                failure = error
        if log is not None:
            self._seen = log.rev
        if failure is not None:
            raise failure

    def _log(self, clients: Sequence[WatchClient]) -> ChangeLog | None:
        """Read the changes since the last time; None if all *clients* have closed."""
        for client in clients:
            with client.lock:
                if not client.is_closed:
                    return client.store.database.read(partial(changes_since, self._seen))
        return None

    def _pause(self, reader: SignalReader) -> float:
        pauses = [_LONGEST]
        clients, checker = self.clients, self._checker
        if any(client.store.watches for client in clients):
            pauses.append(reader.look_seconds)
        if checker is not None and any(client.store.watches.on_claims for client in clients):
            pauses.append(checker.store.liveness_check.seconds_to_look())
        return max(0.0, min(pauses))


def _tried(step: Callable[[], None]) -> bool:
    """Do *step*, and return whether it need not be tried again soon."""
    try:
        step()
    except (Kip30Error, sqlite3.Error, OSError):
        _log.debug("trying again soon", exc_info=True)
        return False
    except Exception:  # noqa: BLE001  one bad callback must not end the leases of all
        _log.exception("a sink or a lease callback raised")
    return True


# The threads of this process. Changed while forks are held off.
_threads: dict[ThreadKey, WatchThread] = {}


def _joined(key: ThreadKey, client: WatchClient) -> WatchThread:
    """Return the thread of *key*, which serves *client* from now on."""
    with held_off.lock:
        thread = _threads.setdefault(key, WatchThread(key))
        thread.clients = (*thread.clients, client)
    return thread
