"""What the drivers of one backend share, put together, and taken apart in the right order."""

import logging
import os

from kip30.driver import Context
from kip30.driver.kit.lifecycle import Ending
from kip30_backends.embedded import fork_safety, locks, schema
from kip30_backends.embedded.change_signal import (
    ChangeSignal,
    InotifyReader,
    PollingReader,
    SignalReader,
    must_poll,
)
from kip30_backends.embedded.connections import Connections
from kip30_backends.embedded.database import Database, LockBackoff, Transaction
from kip30_backends.embedded.errors import translate
from kip30_backends.embedded.faults import Faults
from kip30_backends.embedded.liveness import LivenessCheck, Peers
from kip30_backends.embedded.request import Answers
from kip30_backends.embedded.schema import refuse_network
from kip30_backends.embedded.session import Renewal, Sessions
from kip30_backends.embedded.settings import EmbeddedSettings
from kip30_backends.embedded.snapshots import States
from kip30_backends.embedded.watch import Watches, WatchThread

_log = logging.getLogger(__name__)

_FIND_ROOT = "SELECT id FROM root WHERE name = ?"
_ADD_ROOT = "INSERT OR IGNORE INTO root (name) VALUES (?)"


class Engine:
    """An open directory. Nothing in it refers to the backend, so that one can be dropped.

    Attributes:
        polls: Whether observers look from time to time instead of being notified.
    """

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        """Open, and make what is missing.

        Raises:
            ConfigError: The settings ask for what the system does not have. Nothing is touched.
            LifecycleError: See `fork_safety.refuse_if_unclean`. Nothing is touched.
            StoreError: The directory or the file cannot be used.
            UnavailableError: The file stayed locked for the connect timeout.
            sqlite3.Error: What `translate` makes a `StoreError` of.
            OSError: The same.
        """
        fork_safety.refuse_if_unclean()
        self.locks = locks.choose(settings.liveness)
        self.polls = must_poll(settings.notify)
        refuse_network(settings.directory.absolute())
        file = schema.prepare(settings.directory.absolute(), context.connect_timeout_seconds)
        directory = file.parent
        self._settings = settings
        self._directory = directory
        self._pid = os.getpid()
        self.connections = Connections(file, synchronous=settings.synchronous.upper())
        self.signal_file = self._open_doorbell()
        self.faults = Faults(context.operation_timeout_seconds)
        self.answers = Answers(file, self.faults)
        self.peers = Peers(directory / schema.SESSIONS, self.locks, context.clock, schema.boot_id())
        seconds = context.operation_timeout_seconds
        self.database = Database(
            file, self.connections, seconds=seconds, ring=self.signal_file.ring
        )
        self.sessions = Sessions(context, self.database, self.locks, self.peers, self.faults)
        self.root = self._find_root(context)
        self.states = States(self.database, self.root, self.peers)
        self.watches = Watches(self.states, self.faults)
        liveness_check = LivenessCheck(self.database, self.peers, context.clock)
        self.watch_thread = WatchThread(self._make_ear, self.sessions, self.watches, liveness_check)
        self.renewal = Renewal(self.sessions)
        self.sessions.on_open = self._serve_session
        self.faults.end_session = self._end_session
        self._ending = Ending(self._is_own_thread)
        fork_safety.register(self)

    def close(self) -> None:
        """End the session, all watches, the thread and the connections. Idempotent."""
        self._ending.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any more; on any thread."""
        if not self.watch_thread.leave_orphaned(self.close):
            self.close()

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._ending.forgo()
        self.database.abandon()
        self.sessions.abandon()
        self.watches.abandon()
        self.watch_thread.abandon()
        self.renewal.abandon()
        self.signal_file.close()

    def _close(self) -> None:
        if os.getpid() != self._pid:
            return  # forked by code that runs no hooks: all this is the parent's
        self.faults.close()
        self.watches.close()
        self.watch_thread.stop()
        self.renewal.stop()
        self.sessions.close()
        self.connections.close()
        self.signal_file.close()

    def _open_doorbell(self) -> ChangeSignal:
        try:
            return ChangeSignal(self._directory / schema.DOORBELL)
        except BaseException:
            self.connections.close()
            raise

    def _serve_session(self) -> None:
        self.renewal.wake()
        self.watch_thread.wake()

    def _is_own_thread(self) -> bool:
        return self.watch_thread.is_this_thread() or self.renewal.is_this_thread()

    def _find_root(self, context: Context) -> int:
        name = context.namespace.encode()
        backoff = LockBackoff(context.connect_timeout_seconds)
        try:
            schema.skip_lost_revisions(self.database, self.peers.boot, backoff)
            return self.database.write(lambda tx: _root(tx, name), backoff=backoff)
        except BaseException:
            self.connections.close()
            self.signal_file.close()
            raise

    def _make_ear(self) -> SignalReader:
        if not self.polls:
            try:
                return InotifyReader(
                    self._directory / schema.DOORBELL, self._directory / schema.SESSIONS
                )
            except OSError as error:
                _log.warning(
                    "no inotify (%s): looking for changes from time to time", error.strerror
                )
        try:
            return PollingReader(self._settings.poll_seconds)
        except OSError as error:
            raise translate(error, self._directory) from error

    def _end_session(self) -> None:
        self.sessions.expire()
        self.sessions.renew_now()
        self.renewal.wake()


def _root(tx: Transaction, name: bytes) -> int:
    tx.execute(_ADD_ROOT, (name,))
    root: int = tx.execute(_FIND_ROOT, (name,)).fetchone()[0]
    return root
