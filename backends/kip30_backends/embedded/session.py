"""The session of a backend: a locked file and a row with a deadline, renewed until closed.

The first claim opens it, and all claims share it. When it is lost, the next claim opens a new one.
A thread of its own renews it, so that neither slow watches nor checks of other processes delay a
renewal; and its writes go before all others of this process (`WriteQueue`).
"""

import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from kip30.driver import Context
from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.lifecycle import do_nothing
from kip30.driver.kit.session import ENDED, WORK_GOES_ON
from kip30.driver.kit.thread_start import join_others, started
from kip30.driver.lease import LATE, Lease
from kip30.errors import (
    ClosedError,
    Kip30Error,
    StoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from kip30_backends.embedded.connections import LockBackoff
from kip30_backends.embedded.database import Database, QueueTurn, Transaction, WriteQueue
from kip30_backends.embedded.errors import changed_nothing, translate
from kip30_backends.embedded.liveness import SessionLiveness, UnconfirmedEnds
from kip30_backends.embedded.liveness_locks import Locks

T = TypeVar("T")

_OPEN = "INSERT INTO session (id, boot, deadline, pid) VALUES (?, ?, ?, ?)"
_RENEW = "UPDATE session SET deadline = ? WHERE id = ? AND deadline > ?"
_IS_OPEN = "SELECT 1 FROM session WHERE id = ? AND deadline > ?"
_RENEWALS_PER_TIMEOUT = 3
_SHORT = 0.2
_RENEWAL_PATIENCE = 0.1


class SessionLostError(Exception):
    """The session ended while it was in use. Nothing was done."""


class Session:
    """One life of a backend's claims."""

    def __init__(self, ident: str, file: str, descriptor: int, lease: Lease) -> None:
        """Start with *descriptor*, which has *file* locked, valid for as long as *lease* says."""
        self.ident = ident
        self.file = file
        self.descriptor = descriptor
        self.lease = lease


class Sessions:
    """Opens, renews and ends the sessions of one backend, one at a time. Thread-safe."""

    def __init__(
        self, context: Context, database: Database, locks: Locks, liveness: SessionLiveness
    ) -> None:
        """Keep sessions in *database* and their lock files where *liveness* looks for them."""
        self._context = context
        self._clock = context.clock
        self._database = database
        self._locks = locks
        self._liveness = liveness
        self._renewals_paused = False
        # Of the threads that open a session, or close this.
        self._open_queue = WriteQueue()
        # Held to take `session` away, which is done once for each.
        self._lock = threading.Lock()
        self._closed = False
        # When the next renewal is due, by the clock of leases. Written by the thread that opened or
        # renewed the session.
        self._renew_at = 0.0
        # The session that claims use; None before the first and after a lost one. Set in the turn
        # of `_open_queue`.
        self.session: Session | None = None
        self._ends = UnconfirmedEnds(context, database, liveness)
        # Called when a session was opened, before any claim is made in it.
        self.on_open: Callable[[], None] = do_nothing

    def within(self, work: Callable[[Transaction, Session], T], *, durable: bool = False) -> T:
        """Run *work* in a transaction that finds the session alive.

        Raises:
            ClosedError: The backend is closed. Nothing was done.
            UnavailableError: No session could be kept long enough. Nothing was done.
        """
        backoff = LockBackoff(self._context.operation_timeout_seconds)
        while True:
            session = self._current(backoff)
            try:
                return self._database.write(
                    partial(self._inside, session, work), durable=durable, backoff=backoff
                )
            except SessionLostError:
                self.end(session, ENDED, backoff)
            backoff.pause("the session ended again and again")

    def has_ended(self, ident: str) -> bool:
        """Return whether the store is known to hold nothing of the session *ident* any longer.

        The transaction that opens a session ends the former sessions of this backend, and a claim
        is made by a transaction that finds its session alive.
        """
        session = self.session
        return session is not None and session.ident != ident

    def holds(self, transaction: Transaction | sqlite3.Connection, ident: str) -> bool:
        """Return whether the session *ident* has a future deadline."""
        row = transaction.execute(_IS_OPEN, (ident, self._clock.now())).fetchone()
        return row is not None

    def renew(self) -> None:
        """Renew the session if that is due. Takes `_RENEWAL_PATIENCE` seconds at the most.

        Raises:
            sqlite3.OperationalError: Another process was writing (`is_busy`). Retry soon.
            UnavailableError: Another thread was waiting for that process. Retry soon.
            StoreError: The file was replaced. The session has ended.
        """
        if (session := self.session) is not None:
            self._renew_or_end(session)
        self._ends.retry(_RENEWAL_PATIENCE)

    def has_work(self) -> bool:
        """Return whether there is something to renew, or to end in the store."""
        return self.session is not None or self._ends.has_any()

    def _renew_or_end(self, session: Session) -> None:
        self._end_if_replaced(session)
        if not os.fstat(session.descriptor).st_nlink and session.lease.end_reason is None:
            session.lease.end(self._why_without_file(session))
        if session.lease.expire():
            if not session.lease.is_in_use():
                self.end(session, LATE, LockBackoff(_SHORT))
        elif self._clock.now() >= self._renew_at and not self._renewals_paused:
            self._renew(session)

    def renewal_failed(self, error: Kip30Error | sqlite3.Error | OSError) -> None:
        """Note why `renew` has raised *error*, for the reason with which the session may end."""
        session = self.session
        if session is not None:
            session.lease.renewal_failed(translate(error, self._database.connections.file))

    def seconds_to_renewal(self) -> float | None:
        """Return how long until the next renewal; None if there is none to come."""
        session = self.session
        if session is None or session.lease.end_reason is not None or self._renewals_paused:
            return None
        return self._renew_at - self._clock.now()

    def end(self, session: Session, reason: str, backoff: LockBackoff | None = None) -> None:
        """End *session* and delete its claims, at once if the store can be reached.

        Otherwise other processes see by its lock that it has ended, and `renew` ends it there: if
        its lock file was removed, they would wait for the deadline in its row.
        """
        if session is not self.session:
            return  # without waiting for a thread that is opening the next one
        with self._lock:
            if session is not self.session:
                return
            # Before another session can be opened: that ends all that are dead, this one included.
            self._liveness.mark_ending(session.ident)
            self._ends.expect(session.ident)
            self.session = None
        is_ended = False
        try:
            session.lease.end(reason)
        finally:
            session.lease.end(reason)  # before the claims, also if a signal handler raised in it
            try:
                is_ended = self._ends.end(session.ident, backoff)
            finally:
                # Without its file a session still in the store would last until its deadline.
                self._locks.drop(session.file, session.descriptor, keep=not is_ended)

    def renew_now(self) -> None:
        """Make the next `renew` act whether a renewal is due or not."""
        self._renew_at = 0.0

    @contextmanager
    def pause_renewals(self) -> Generator[None]:
        """Keep `renew` from renewing in the block; an expired session still ends."""
        self._renewals_paused = True
        try:
            yield
        finally:
            self._renewals_paused = False

    def expire(self) -> None:
        """Delete the claims of the session as others do with a dead one, without notifying it."""
        session = self.session
        if session is not None:
            self._database.write(lambda tx: self._liveness.end(tx, session.ident))

    def share(self, lease: Lease) -> int:
        """Return the descriptor that keeps the session of *lease* alive.

        Raises:
            UnsupportedError: Record locks cannot be shared.
            UsageError: *lease* has ended.
        """
        if not self._locks.shareable:
            raise UnsupportedError("record locks belong to one process: use liveness=ofd")
        session = self.session
        if session is None or session.lease is not lease or lease.end_reason is not None:
            raise UsageError("the lease is over: there is nothing to share")
        return session.descriptor

    def close(self) -> None:
        """End the session, and open no other one. It does not wait long for other programs."""
        turn = QueueTurn()
        try:
            self._open_queue.enter(turn, float("inf"))
            self._closed = True
            session = self.session
        finally:
            turn.over = True
            self._open_queue.leave(turn)
        if session is not None:
            self.end(session, "closed", LockBackoff(_SHORT))

    def abandon(self) -> None:
        """In a forked child: forget the parent's session; `locks` has closed its descriptor."""
        self._open_queue = WriteQueue()
        self._lock = threading.Lock()
        self._ends.abandon()
        self.session = None
        self._closed = True

    def _current(self, backoff: LockBackoff) -> Session:
        while True:
            session = self._found_or_opened(backoff)
            if session.lease.is_valid():
                return session
            session.lease.expire()
            if session.lease.is_in_use():
                backoff.pause(WORK_GOES_ON)
                continue
            self.end(session, LATE, backoff)
            backoff.pause("each new session ended before it could be used")

    def _found_or_opened(self, backoff: LockBackoff) -> Session:
        turn = QueueTurn()
        try:
            # Another thread has the turn for as long as it takes to open a session.
            if not self._open_queue.enter(turn, backoff.seconds_left()):
                raise UnavailableError("no session could be opened in time")
            if self._closed:
                self._database.connections.refuse()
                raise ClosedError(CLOSED)
            if self.session is not None:
                return self.session
            session = self.session = self._open(backoff)
            try:
                self.on_open()
            except BaseException:
                self.end(session, "it cannot be renewed")
                raise
        finally:
            turn.over = True
            self._open_queue.leave(turn)
        return session

    def _open(self, backoff: LockBackoff) -> Session:
        while True:
            try:
                return self._try_to_open(backoff)
            except SessionLostError:
                backoff.pause("other processes took each new session for a dead one")

    def _try_to_open(self, backoff: LockBackoff) -> Session:
        ident = secrets.token_hex(8)
        file = self._liveness.lock_file(ident)
        descriptor = self._locks.hold(file)
        try:
            enter = partial(self._enter, ident, descriptor)
            sent_at = self._database.write(enter, backoff=backoff)
            self._liveness.clear_ending()
            self._schedule(sent_at)
            return Session(ident, file, descriptor, self._context.lease(sent_at=sent_at))
        except BaseException as error:
            # A row without its file would stay until its deadline.
            never_opened = isinstance(error, SessionLostError) or changed_nothing(error)
            self._locks.drop(file, descriptor, keep=not never_opened)
            raise

    def _enter(self, ident: str, descriptor: int, tx: Transaction) -> float:
        """Open the session *ident*, and return when its time starts.

        That is read here, while this connection is the writer: waiting for the lock must not use up
        any of the session's time.
        """
        if not os.fstat(descriptor).st_nlink:
            raise SessionLostError  # another process removed it before it was locked
        self._liveness.sweep(tx)
        sent_at = self._clock.now()
        deadline = sent_at + self._context.session_timeout_seconds
        tx.execute(_OPEN, (ident, self._liveness.boot, deadline, os.getpid()))
        return sent_at

    def _renew(self, session: Session) -> None:
        extend = partial(self._extend, session)
        backoff = LockBackoff(_RENEWAL_PATIENCE)
        sent_at = self._database.write(extend, backoff=backoff, urgent=True)
        if sent_at is None:
            self.end(session, ENDED, LockBackoff(_SHORT))
        elif session.lease.record_renewal(sent_at):
            self._schedule(sent_at)

    def _end_if_replaced(self, session: Session) -> None:
        """End *session* if the file was replaced: others may lead by the new one."""
        try:
            self._database.connections.check_file()
        except StoreError as error:
            self.end(session, str(error), LockBackoff(_SHORT))
            raise

    def _extend(self, session: Session, tx: Transaction) -> float | None:
        """Renew *session* and return when its time starts; None if it has ended."""
        sent_at = self._clock.now()
        deadline = sent_at + self._context.session_timeout_seconds
        changed = tx.execute(_RENEW, (deadline, session.ident, sent_at)).rowcount
        return sent_at if changed else None

    def _why_without_file(self, session: Session) -> str:
        """Return why *session* has no lock file, which is removed after the row of a session."""
        with suppress(Kip30Error, sqlite3.Error, OSError):
            held = partial(self.holds, ident=session.ident)
            if not self._database.read(held, LockBackoff(_RENEWAL_PATIENCE)):
                return ENDED
        return "its lock file was removed"

    def _schedule(self, sent_at: float) -> None:
        self._renew_at = sent_at + self._context.session_timeout_seconds / _RENEWALS_PER_TIMEOUT

    def _inside(
        self, session: Session, work: Callable[[Transaction, Session], T], tx: Transaction
    ) -> T:
        if not self.holds(tx, session.ident):
            raise SessionLostError
        return work(tx, session)


_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 0.25
_RETRY_PAUSE = 0.02


class Renewal:
    """Runs the thread for as long as there is a session, or one is to be ended. Thread-safe."""

    def __init__(self, sessions: Sessions) -> None:
        """Renew the open session of *sessions*."""
        self._sessions = sessions
        # Entered by `with` itself, because a `Condition` is entered by code in Python: a signal
        # handler that raises in it would leave the lock taken.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._woken = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Check the session now, starting the thread if there is none.

        Raises:
            ClosedError: The backend is closed.
            UnavailableError: The system has no thread to spare.
        """
        with self._lock:
            if self._stopped:
                raise ClosedError(CLOSED)
            self._woken = True
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        """End the thread and wait until it has ended, unless this is called on it."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        join_others(thread)

    def is_this_thread(self) -> bool:
        """Return whether the caller is the thread."""
        return self._thread is threading.current_thread()

    def abandon(self) -> None:
        """In a forked child: there is no thread here."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stopped = True
        self._thread = None

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="kip30-embedded-renewal", daemon=True)
        try:
            self._thread = thread
            running = started(thread)
        except BaseException:  # a signal handler raised, and the thread may run: it will end
            self._thread = None
            raise
        if not running:
            self._thread = None
            raise UnavailableError("the system has no thread to spare for renewing the session")

    def _run(self) -> None:
        while self._goes_on():
            pause = self._renewed()
            with self._lock:
                if not self._woken and not self._stopped:
                    self._changed.wait(pause)
                self._woken = False

    def _goes_on(self) -> bool:
        with self._lock:
            if not self.is_this_thread():
                return False
            if self._sessions.has_work() and not self._stopped:
                return True
            self._thread = None
        return False

    def _renewed(self) -> float:
        """Renew the session if that is due; return the number of seconds until the next check."""
        try:
            self._sessions.renew()
        except (Kip30Error, sqlite3.Error, OSError) as error:
            _log.debug("retrying the renewal soon", exc_info=True)
            self._sessions.renewal_failed(error)
            return _RETRY_PAUSE
        except Exception:  # noqa: BLE001  one bad callback must not end the leases of all
            _log.exception("a lease callback raised")
        left = self._sessions.seconds_to_renewal()
        return _LONGEST_PAUSE if left is None else max(0.0, min(_LONGEST_PAUSE, left))
