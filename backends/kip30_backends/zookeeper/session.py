"""The session of a backend: opened, kept and replaced, over one connection at a time.

The lease says when a session has ended. It is renewed by answers that take a quorum, not by those
of a server that is cut off from the others, even if it was their leader; and it is dated from a
request that the servers' leader knows of, not from the newest one that was answered. A session that
has ended stays so: it is closed on the server, if it still exists there, before another one is
opened.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.thread_start import join_others, started
from kip30.driver.lease import LATE, Lease
from kip30.errors import AuthenticationError, ClosedError, Kip30Error
from kip30_backends.zookeeper.calls import Outbox, PendingOperation
from kip30_backends.zookeeper.client.kazoo_setup import Server, Session, SessionIdentity
from kip30_backends.zookeeper.client.messages import Event
from kip30_backends.zookeeper.client.session_connection import Owner, SessionConnection
from kip30_backends.zookeeper.errors import why_unreachable
from kip30_backends.zookeeper.watch import Watches

_ERA = 2**40


class SessionContext(NamedTuple):
    """Objects that all sessions of a backend share.

    Attributes:
        forget: Called before the first request of each session, on the connection's thread: the
            servers may have lost what former sessions have read.
        former: The numbers of the last sessions that ended; `Sessions` adds to it.
    """

    context: Context
    server: Server
    outbox: Outbox
    watches: Watches
    forget: Callable[[], None]
    former: deque[int]


class ManagedSession(Owner):
    """The connections of one session, one after the other. Its callbacks run on their thread."""

    def __init__(
        self,
        shared: SessionContext,
        era: int,
        lost: Callable[["ManagedSession", str], None],
    ) -> None:
        """Prepare to connect; *lost* is called when the session has ended.

        Answers are ordered after those of earlier eras: a server may have lost its history.
        """
        context = shared.context
        # These are written by callbacks, on the thread of the connection.
        # The session, once the servers have granted it.
        self.session: Session | None = None
        self.timeout_seconds = context.session_timeout_seconds
        self._opened_with_seconds = self.timeout_seconds
        # Set when it is known whether there will be a session.
        self.settled = threading.Event()
        # Whether a quorum has agreed on anything in this session.
        self.is_proven = False
        self.connection = SessionConnection(
            shared.server, self, context.clock, self.timeout_seconds
        )
        self._context = context
        self._outbox = shared.outbox
        self._watches = shared.watches
        self._forget = shared.forget
        self._former = shared.former
        self._orders = itertools.count(era * _ERA)
        self._order = next(self._orders)
        self._lost = lost

    @override
    def connected(self, client: SessionConnection, sent_at: float, timeout_seconds: float) -> None:
        if self.session is None:
            self._opened_with_seconds = timeout_seconds
        timeout_seconds = min(timeout_seconds, self._opened_with_seconds)
        self.timeout_seconds = timeout_seconds
        if self.session is None:
            self._forget()
            lease = self._context.lease(sent_at=sent_at, timeout_seconds=timeout_seconds)
            self.session = Session(client.identity, lease, self._former)
            self.settled.set()
        else:
            # Each server grants by its own limits, and keeps the session for as long from then on;
            # but the next server to lead begins with the timeout that it was opened with.
            self.session.lease.regranted(sent_at=sent_at, timeout_seconds=timeout_seconds)
            if self.session.lease.expire():
                self._lost(self, LATE)
                return
        self._outbox.attach(client)
        self._watches.connected()

    @override
    def over(self, client: SessionConnection, reason: str) -> None:
        self.settled.set()
        self._lost(self, reason)

    @override
    def proven(self, renewed_at: float, begun_at: float) -> None:
        self.is_proven = True
        if self.session is None:
            return
        if self.session.lease.extend(renewed_at):
            self.session.lease.measure_renewal(begun_at)
        else:
            self._lost(self, LATE)

    @override
    def outgoing(self, most: int) -> Sequence[PendingOperation[Any]]:
        if self.session is not None and self.session.lease.expire():
            self._lost(self, LATE)
            return ()
        return self._outbox.take(most, self.session)

    @override
    def answered(self, operation: PendingOperation[Any], outcome: object) -> None:
        if self.session is not None:
            operation.take(
                outcome,
                next(self._orders),
                self.session,
                self.connection.progress,
                self.connection.log_in_again,
            )

    @override
    def happened(self, event: Event) -> None:
        self._watches.happened(event, next(self._orders))


class SessionCloser(Owner):
    """Takes up a session that has ended for its client, to close it on the server.

    It requests that on each new connection until the server agrees: another process that still uses
    the session takes the connection away.

    Attributes:
        connection: Not started yet.
        done: Set once the session is closed, expired, or refused with these credentials.
    """

    def __init__(self, context: Context, server: Server, identity: SessionIdentity) -> None:
        """Prepare to close the session *identity*."""
        self.done = threading.Event()
        timeout = context.session_timeout_seconds
        self.connection = SessionConnection(
            server,
            self,
            context.clock,
            timeout,
            identity=identity,
            unanswered_gap_seconds=1.5 * timeout,
        )

    @override
    def connected(self, client: SessionConnection, sent_at: float, timeout_seconds: float) -> None:
        client.end()

    @override
    def over(self, client: SessionConnection, reason: str) -> None:
        self.done.set()

    @override
    def proven(self, renewed_at: float, begun_at: float) -> None:
        """Do nothing: there is nothing to renew."""

    @override
    def outgoing(self, most: int) -> Sequence[PendingOperation[Any]]:
        return ()

    @override
    def answered(self, operation: PendingOperation[Any], outcome: object) -> None:
        """Send no requests."""

    @override
    def happened(self, event: Event) -> None:
        """Watch nothing."""


log: logging.Logger = logging.getLogger(__name__)

# Two of these intervals are longer than that of the leader's pings: a renewal counts from the last
# but one.
_RENEWALS_PER_TIMEOUT = 7
_SILENCES_PER_TIMEOUT = 3
_POLL_SECONDS = 0.05
_PAUSE = 0.2
_PAUSE_IF_REJECTED = 5.0
_CLOSING_SHARE = 0.5
_MILLISECOND = 0.001


class Sessions:
    """The sessions of one backend, one at a time. Thread-safe."""

    def __init__(self, shared: SessionContext) -> None:
        """Start without a session; `open` opens the first."""
        self._shared = shared
        self._context = shared.context
        self.server = shared.server
        self._lock = threading.Lock()
        # Set once, under the lock: no session is opened after that.
        self._closing = threading.Event()
        # The session in use; None between two. Written under the lock.
        self._current: ManagedSession | None = None
        # The thread that opens the next session, perhaps ended; and a lost session for whose
        # replacement there was no thread to spare: `renew_if_due` retries. Under the lock.
        self._replacing: threading.Thread | None = None
        self._unreplaced: ManagedSession | None = None
        # How many sessions were begun. Written by the thread that opens, of which there is one.
        self._eras = 0
        # When the next proof of the session is due. Written by `renew_if_due`, on the timer thread.
        self._renewal_at = 0.0

    @property
    def current(self) -> ManagedSession | None:
        """The session in use, if there is one."""
        return self._current

    def open(self) -> None:
        """Open the first session; log a warning if another timeout is granted than requested.

        Raises:
            UnavailableError: Not within the connect timeout.
            AuthenticationError: The servers reject the credentials, or this client rejects theirs.
        """
        self._open(self._context.connect_timeout_seconds)
        managed, requested = self._current, self._context.session_timeout_seconds
        if managed is not None and abs(managed.timeout_seconds - requested) > _MILLISECOND:
            log.warning(
                "the servers grant a session timeout of %g s instead of %g s: change"
                " plugin.session.timeout.ms, or the servers' tickTime, minSessionTimeout or"
                " maxSessionTimeout",
                managed.timeout_seconds,
                requested,
            )

    def renew_if_due(self) -> None:
        """Request a proof of the session if that is due, and end an expired session."""
        managed = self._current
        if self._unreplaced is not None:
            with self._lock:
                self._begin_to_replace()
        if managed is None or managed.session is None:
            return
        if managed.connection.trouble is not None:
            managed.session.lease.renewal_failed(
                why_unreachable(managed.connection.trouble, self.server.hosts)
            )
        if managed.session.lease.expire():
            self._lose(managed, LATE)
            return
        if managed.connection.refused is not None:
            self._shared.outbox.refuse(
                why_unreachable(managed.connection.refused, self.server.hosts)
            )
        unproven, now = managed.connection.unproven, time.monotonic()
        if unproven and now - unproven.since > managed.timeout_seconds / _SILENCES_PER_TIMEOUT:
            log.info("%s does not answer: trying another server", managed.connection.peer)
            managed.connection.drop()
        elif now >= self._renewal_at:
            self._renewal_at = now + managed.timeout_seconds / _RENEWALS_PER_TIMEOUT
            managed.connection.prove()

    def close_former(self, identity: SessionIdentity) -> None:
        """Close the session *identity* on the server, over a connection of its own.

        Raises:
            UnavailableError: The server did not say by the connect timeout that it is closed.
        """
        closer = SessionCloser(self._context, self.server, identity)
        try:
            closer.connection.start()
            self._await(closer.done, self._context.connect_timeout_seconds)
            self._require(closer.done.is_set(), closer.connection)
        finally:
            closer.connection.disconnect()

    def expire_session(self) -> None:
        """Close this client's session on the server over another connection; for tests.

        Raises:
            UnavailableError: The server did not say in time that it is closed.
        """
        managed = self._current
        if managed is not None and managed.session is not None:
            self.close_former(managed.session.identity)

    def close(self) -> None:
        """End the session, on the server too if it answers in time, and open no other."""
        with self._lock:
            self._closing.set()
            managed, self._current = self._current, None
            replacing, unreplaced = self._replacing, self._unreplaced
        with ExitStack() as last_first:
            last_first.callback(join_others, replacing)
            if unreplaced is not None:
                last_first.callback(unreplaced.connection.disconnect)
            if managed is not None:
                patience_seconds = self._context.operation_timeout_seconds * _CLOSING_SHARE
                last_first.callback(managed.connection.close, patience_seconds)
                if managed.session is not None:
                    managed.session.lease.end("closed")

    def _open(self, patience_seconds: float) -> None:
        self._eras += 1
        managed = ManagedSession(self._shared, self._eras, self._lose)
        with self._lock:
            if self._closing.is_set():
                raise ClosedError(CLOSED)
            self._current = managed
        try:
            managed.connection.start()
            self._await(managed.settled, patience_seconds)
            self._require(managed.session, managed.connection)
        except BaseException:
            with self._lock:
                self._current = None if self._current is managed else self._current
            managed.connection.disconnect()
            raise

    def _lose(self, managed: ManagedSession, reason: str) -> None:
        """Give up *managed* for good, and open a new session."""
        with self._lock:
            if managed is not self._current or managed.session is None:
                return
            self._current = None
            self._shared.former.append(managed.session.ident)
            self._shared.outbox.attach(None)
            self._unreplaced = managed
            self._begin_to_replace()
        managed.session.lease.end(reason)

    def _begin_to_replace(self) -> None:
        """Start a thread that opens another session; `renew_if_due` retries if there is none."""
        managed = self._unreplaced
        if managed is None or self._closing.is_set():
            return
        thread = threading.Thread(
            target=self._replace, args=(managed,), name="kip30-zookeeper", daemon=True
        )
        if started(thread):
            self._unreplaced, self._replacing = None, thread

    def _replace(self, old: ManagedSession) -> None:
        old.connection.disconnect()
        identity = old.session.identity if old.session and not old.connection.expired else None
        if old.session is not None and identity is not None:
            self._await_work(old.session.lease)
        if not old.is_proven:
            self._pause(why_unreachable(old.connection.trouble, self.server.hosts))
        while not self._closing.is_set():
            try:
                if identity is not None:
                    self.close_former(identity)
                    identity = None
                self._open(self._context.connect_timeout_seconds)
            except Exception as error:  # noqa: BLE001  otherwise there would be no session any more
                self._pause(error)
            else:
                return

    def _await_work(self, lease: Lease) -> None:
        """Wait for the work under *lease*, or for `close`: closing it lets another one lead."""
        while lease.is_in_use() and not self._closing.wait(_POLL_SECONDS):
            pass

    def _pause(self, error: Exception) -> None:
        """Wait before another attempt; a retry does not make a wrong password right."""
        if isinstance(error, AuthenticationError):
            log.warning("no new session: %s", error)
            self._shared.outbox.refuse(error)
            self._closing.wait(_PAUSE_IF_REJECTED)
            return
        if isinstance(error, Kip30Error):
            log.info("no new session yet: %s", error)
        else:
            log.error("no new session yet", exc_info=error)
        self._closing.wait(_PAUSE)

    def _require(self, reached: object, client: SessionConnection) -> None:
        if not reached:
            raise why_unreachable(client.trouble, self.server.hosts)

    def _await(self, event: threading.Event, patience_seconds: float) -> None:
        """Wait for *event*, for the end of patience or for `close`, whichever comes first."""
        until = time.monotonic() + patience_seconds
        while not event.is_set() and not self._closing.is_set() and time.monotonic() < until:
            event.wait(min(_POLL_SECONDS, patience_seconds))
