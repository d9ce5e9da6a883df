"""Resources that the drivers of one backend share, started and closed in the right order."""

import logging
import os
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack

from kip30.driver import Context, Watch
from kip30.driver.kit.lifecycle import CloseOnce, end_all
from kip30.driver.kit.watch import Sink
from kip30.driver.records import Snapshot, Target
from kip30_backends.embedded import database_file, fork_safety, liveness_locks
from kip30_backends.embedded.calls import Answers
from kip30_backends.embedded.change_signal import (
    ChangeSignal,
    InotifyReader,
    PollingReader,
    SignalReader,
    must_poll,
)
from kip30_backends.embedded.connections import Connections, LockBackoff
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.database_file import refuse_network
from kip30_backends.embedded.errors import translate
from kip30_backends.embedded.liveness import LivenessCheck, SessionLiveness
from kip30_backends.embedded.session import Renewal, Sessions
from kip30_backends.embedded.settings import EmbeddedSettings
from kip30_backends.embedded.target_states import TargetStates
from kip30_backends.embedded.watch import Watches
from kip30_backends.embedded.watch_thread import WatchClient, WatchedStore

_log = logging.getLogger(__name__)

_FIND_ROOT = "SELECT id FROM root WHERE name = ?"
_ADD_ROOT = "INSERT OR IGNORE INTO root (name) VALUES (?)"


class Resources:
    """An open directory. Nothing in it refers to the backend, so that one can be dropped.

    Attributes:
        polls: Whether observers look from time to time instead of being notified.
    """

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        """Open the directory, and create what is missing.

        Raises:
            ConfigError: The settings require a feature that the system lacks. Nothing is touched.
            LifecycleError: See `fork_safety.refuse_if_unclean`. Nothing is touched.
            StoreError: The directory or the file cannot be used.
            UnavailableError: The file stayed locked for the connect timeout.
            sqlite3.Error: An error that `translate` converts to a `StoreError`.
            OSError: Likewise.
        """
        fork_safety.refuse_if_unclean()
        self.locks = liveness_locks.choose(settings.liveness)
        self.polls = must_poll(settings.notify)
        refuse_network(settings.directory.absolute())
        self._settings = settings
        self._pid = os.getpid()
        with ExitStack() as opened:
            self._open(context, opened)
            fork_safety.register(self)
            opened.pop_all()

    def _open(self, context: Context, opened: ExitStack) -> None:
        """Open all parts; *opened* closes those that were opened if another one fails."""
        settings = self._settings
        file, self._directory_lock = database_file.prepare(
            settings.directory.absolute(), self.locks, context.connect_timeout_seconds
        )
        opened.callback(self._directory_lock.close)
        directory = self._directory = file.parent
        self.connections = Connections(file, synchronous=settings.synchronous.upper())
        opened.callback(self.connections.close)
        self.signal_file = ChangeSignal(directory / database_file.SIGNAL_FILE)
        opened.callback(self.signal_file.close)
        self.answers = Answers(file)
        self.liveness = SessionLiveness(
            directory / database_file.SESSIONS, self.locks, context.clock, database_file.boot_id()
        )
        seconds = context.operation_timeout_seconds
        self.database = Database(
            file, self.connections, seconds=seconds, notify=self.signal_file.notify
        )
        self.sessions = Sessions(context, self.database, self.locks, self.liveness)
        self.root = self._find_root(context)
        self.states = TargetStates(self.database, self.root, self.liveness)
        self.watches = Watches(self.states)
        liveness_check = LivenessCheck(self.database, self.liveness, context.clock)
        self.watch_thread = WatchClient(
            settings.poll_seconds if self.polls else None,
            WatchedStore(self.database, self.sessions, self.watches, liveness_check),
            self._make_reader,
        )
        self.renewal = Renewal(self.sessions)
        self.sessions.on_open = self._serve_session
        self._close_once = CloseOnce(self._is_own_thread)

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*."""
        return self.answers.give(lambda: self.states.current(target))

    def watch(self, target: Target, sink: Sink) -> Watch:
        """Notify *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            UnavailableError: The system cannot start another thread.
        """
        watch = self.watches.add(target, sink)
        try:
            self.watch_thread.wake()
        except BaseException:
            watch.close()
            raise
        return watch

    def expire_session(self) -> None:
        """End the session in the store, as if it had expired there; for tests."""
        self.sessions.expire()
        self.sessions.renew_now()
        self.renewal.wake()

    def pause_renewals(self) -> AbstractContextManager[None]:
        """Stop renewals of the session in the block, as in a hung process; for tests."""
        return self.sessions.pause_renewals()

    def between_writes(self) -> AbstractContextManager[None]:
        """Stop all threads of this process from writing in the block; for tests."""
        return self.database.between_writes()

    def close(self) -> None:
        """End the session, all watches, the thread and the connections. Idempotent."""
        self._close_once.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any longer; on any thread."""
        if not self.watch_thread.leave_orphaned(self.close):
            self.close()

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._close_once.forgo()
        self.database.abandon()
        self.sessions.abandon()
        self.watches.abandon()
        self.watch_thread.abandon()
        self.renewal.abandon()
        self.signal_file.close()

    def _close(self) -> None:
        if os.getpid() != self._pid:
            return  # forked by code that runs no hooks: all this is the parent's
        # Deliveries stop first, and the threads end, or leave this alone, before what they use is
        # closed.
        end_all(
            self.watches.close,
            self.watch_thread.stop,
            self.renewal.stop,
            self.sessions.close,
            self.connections.close,
            self.signal_file.close,
            self._directory_lock.close,
        )

    def _serve_session(self) -> None:
        self.renewal.wake()
        self.watch_thread.wake()

    def _is_own_thread(self) -> bool:
        return self.watch_thread.is_the_thread() or self.renewal.is_this_thread()

    def _find_root(self, context: Context) -> int:
        name = context.namespace.encode()
        backoff = LockBackoff(context.connect_timeout_seconds)
        database_file.skip_lost_revisions(self.database, self.liveness.boot, backoff)
        return self.database.write(lambda tx: _root(tx, name), backoff=backoff)

    def _make_reader(self) -> SignalReader:
        if not self.polls:
            try:
                return InotifyReader(
                    self._directory / database_file.SIGNAL_FILE,
                    self._directory / database_file.SESSIONS,
                )
            except OSError as error:
                _log.warning(
                    "no inotify (%s; see fs.inotify.max_user_instances and max_user_watches):"
                    " polling for changes",
                    error.strerror,
                )
        try:
            return PollingReader(self._settings.poll_seconds)
        except OSError as error:
            raise translate(error, self._directory) from error


def _root(tx: Transaction, name: bytes) -> int:
    tx.execute(_ADD_ROOT, (name,))
    root: int = tx.execute(_FIND_ROOT, (name,)).fetchone()[0]
    return root
