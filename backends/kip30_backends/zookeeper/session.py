"""The session of a backend: opened, kept and replaced, over one connection at a time.

The lease says when a session is over. It is renewed by what a quorum agreed on, not by what a
server that is cut off from the others still says, even if it was their leader. What is over stays
over: it is closed on the server, should the server still know it, before another one is opened.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.threads import started
from kip30.errors import AuthenticationError, ClosedError, Kip30Error
from kip30_backends.zookeeper.client.kazoo_adapter import Identity, Server, Session
from kip30_backends.zookeeper.client.session_connection import Client, Owner
from kip30_backends.zookeeper.errors import why_unreachable
from kip30_backends.zookeeper.request import Operation, Outbox
from kip30_backends.zookeeper.watch import Watches

_ERA = 2**40


class Ground(NamedTuple):
    """What all sessions of a backend have in common.

    Attributes:
        former: The numbers of the last sessions that ended; `Sessions` adds to it.
    """

    context: Context
    server: Server
    outbox: Outbox
    watches: Watches
    former: deque[int]


class Line(Owner):
    """The connections of one session, one after the other. Its callbacks run on their thread."""

    def __init__(
        self,
        ground: Ground,
        era: int,
        lost: Callable[["Line", str], None],
    ) -> None:
        """Prepare to connect; *lost* is called when the session is over.

        Answers are ordered after those of earlier eras: a server may have lost its past.
        """
        context = ground.context
        # These are written by callbacks, on the thread of the connection.
        # The session, once the servers have granted it.
        self.session: Session | None = None
        self.timeout_seconds = context.session_timeout_seconds
        # Set when it is known whether there will be a session.
        self.settled = threading.Event()
        # Whether a quorum has agreed on anything in this session.
        self.is_proven = False
        self.client = Client(ground.server, self, context.clock, self.timeout_seconds)
        self._context = context
        self._outbox = ground.outbox
        self._watches = ground.watches
        self._former = ground.former
        self._orders = itertools.count(era * _ERA)
        self._order = next(self._orders)
        self._lost = lost

    @override
    def connected(self, client: Client, sent_at: float, timeout_seconds: float) -> None:
        if self.session is None:
            self.timeout_seconds = timeout_seconds
            lease = self._context.lease(sent_at=sent_at, timeout_seconds=timeout_seconds)
            self.session = Session(client.identity, lease, self._former)
            self.settled.set()
        elif self.session.lease.expire():
            self._lost(self, "not renewed in time")
            return
        self._outbox.attach(client)
        self._watches.connected()

    @override
    def over(self, client: Client, reason: str) -> None:
        self.settled.set()
        self._lost(self, reason)

    @override
    def proven(self, sent_at: float) -> None:
        self.is_proven = True
        if self.session is not None and not self.session.lease.renewed(sent_at):
            self._lost(self, "not renewed in time")

    @override
    def outgoing(self, most: int) -> Sequence[Operation[Any]]:
        if self.session is not None and self.session.lease.expire():
            self._lost(self, "not renewed in time")
            return ()
        return self._outbox.take(most, self.session)

    @override
    def answered(self, operation: Operation[Any], outcome: object) -> None:
        if self.session is not None:
            operation.take(outcome, next(self._orders), self.session, self.client.progress)

    @override
    def happened(self, path: str, *, is_data: bool) -> None:
        self._watches.happened(path, is_data=is_data)


class Undertaker(Owner):
    """Takes up a session that is over for its client, to close it on the server.

    It says so on each new connection until the server agrees: whoever else still uses the session
    takes the connection away.

    Attributes:
        client: Not started yet.
        done: Set once the session is closed, expired, or refused with these credentials.
    """

    def __init__(self, context: Context, server: Server, identity: Identity) -> None:
        """Be about to close the session *identity*."""
        self.done = threading.Event()
        timeout = context.session_timeout_seconds
        self.client = Client(
            server,
            self,
            context.clock,
            timeout,
            identity=identity,
            unanswered_gap_seconds=1.5 * timeout,
        )

    @override
    def connected(self, client: Client, sent_at: float, timeout_seconds: float) -> None:
        client.end()

    @override
    def over(self, client: Client, reason: str) -> None:
        self.done.set()

    @override
    def proven(self, sent_at: float) -> None:
        """Renew nothing."""

    @override
    def outgoing(self, most: int) -> Sequence[Operation[Any]]:
        return ()

    @override
    def answered(self, operation: Operation[Any], outcome: object) -> None:
        """Ask nothing."""

    @override
    def happened(self, path: str, *, is_data: bool) -> None:
        """Watch nothing."""


log: logging.Logger = logging.getLogger(__name__)

_BEATS_PER_TIMEOUT = 4
_SILENCES_PER_TIMEOUT = 3
_GLANCE = 0.05
_PAUSE = 0.2
_PAUSE_IF_REJECTED = 5.0
_CLOSING_SHARE = 0.5


class Sessions:
    """The sessions of one backend, one at a time. Thread-safe."""

    def __init__(self, ground: Ground) -> None:
        """Open none before `open`."""
        self._ground = ground
        self._context = ground.context
        self.server = ground.server
        self._lock = threading.Lock()
        # Set once, under the lock: no session is opened after that.
        self._closing = threading.Event()
        # The line that is used; None between two sessions. Written under the lock.
        self._line: Line | None = None
        # The thread that opens the next session, perhaps ended; and a lost line for whose
        # replacement there was no thread to spare, which `beat` tries again. Under the lock.
        self._replacing: threading.Thread | None = None
        self._unreplaced: Line | None = None
        # How many sessions were begun. Written by the thread that opens, of which there is one.
        self._eras = 0
        # When the next proof of the session is due. Written by `beat`, on the timer thread.
        self._beat_at = 0.0

    @property
    def line(self) -> Line | None:
        """The line there is, if there is one."""
        return self._line

    def open(self) -> None:
        """Open the first session.

        Raises:
            UnavailableError: Not within the connect timeout.
            AuthenticationError: The servers reject the credentials, or we theirs.
        """
        self._open(self._context.connect_timeout_seconds)

    def beat(self) -> None:
        """Ask for a proof of the session if that is due, and end what is over."""
        line = self._line
        if self._unreplaced is not None:
            with self._lock:
                self._begin_to_replace()
        if line is None or line.session is None:
            return
        if line.session.lease.expire():
            self._lose(line, "not renewed in time")
            return
        unproven, now = line.client.unproven, time.monotonic()
        if unproven and now - unproven.since > line.timeout_seconds / _SILENCES_PER_TIMEOUT:
            log.info("%s does not answer: trying another server", line.client.peer)
            line.client.drop()
        elif now >= self._beat_at:
            self._beat_at = now + line.timeout_seconds / _BEATS_PER_TIMEOUT
            line.client.prove()

    def bury(self, identity: Identity) -> None:
        """Close the session *identity* on the server, over a connection of its own.

        Raises:
            UnavailableError: The server did not say by the connect timeout that it is closed.
        """
        undertaker = Undertaker(self._context, self.server, identity)
        try:
            undertaker.client.start()
            self._await(undertaker.done, self._context.connect_timeout_seconds)
            self._require(undertaker.done.is_set(), undertaker.client)
        finally:
            undertaker.client.disconnect()

    def close(self) -> None:
        """End the session, on the server too if it answers in time, and open no other one."""
        with self._lock:
            self._closing.set()
            line, self._line = self._line, None
            replacing, unreplaced = self._replacing, self._unreplaced
        if line is not None:
            if line.session is not None:
                line.session.lease.end("closed")
            line.client.close(self._context.operation_timeout_seconds * _CLOSING_SHARE)
        if unreplaced is not None:
            unreplaced.client.disconnect()
        if replacing is not None and replacing is not threading.current_thread():
            replacing.join()

    def _open(self, patience_seconds: float) -> None:
        self._eras += 1
        line = Line(self._ground, self._eras, self._lose)
        with self._lock:
            if self._closing.is_set():
                raise ClosedError("the backend is closed")
            self._line = line
        try:
            line.client.start()
            self._await(line.settled, patience_seconds)
            self._require(line.session, line.client)
        except BaseException:
            with self._lock:
                self._line = None if self._line is line else self._line
            line.client.disconnect()
            raise

    def _lose(self, line: Line, reason: str) -> None:
        """Give up the session of *line* for good, and see to a new one."""
        with self._lock:
            if line is not self._line or line.session is None:
                return
            self._line = None
            self._ground.former.append(line.session.ident)
            self._ground.outbox.attach(None)
            self._unreplaced = line
            self._begin_to_replace()
        line.session.lease.end(reason)

    def _begin_to_replace(self) -> None:
        """Start a thread that opens another session; without one to spare, `beat` tries again."""
        line = self._unreplaced
        if line is None or self._closing.is_set():
            return
        thread = threading.Thread(
            target=self._replace, args=(line,), name="kip30-zookeeper", daemon=True
        )
        if started(thread):
            self._unreplaced, self._replacing = None, thread

    def _replace(self, old: Line) -> None:
        old.client.disconnect()
        identity = old.session.identity if old.session and not old.client.expired else None
        if not old.is_proven:
            self._pause(why_unreachable(old.client.trouble, self.server.hosts))
        while not self._closing.is_set():
            try:
                if identity is not None:
                    self.bury(identity)
                    identity = None
                self._open(self._context.connect_timeout_seconds)
            except Kip30Error as error:
                self._pause(error)
            else:
                return

    def _pause(self, error: Kip30Error) -> None:
        """Wait before another attempt; a wrong password does not get better by being repeated."""
        if isinstance(error, AuthenticationError):
            log.warning("no new session: %s", error)
            self._ground.outbox.refuse(error)
            self._closing.wait(_PAUSE_IF_REJECTED)
        else:
            log.info("no new session yet: %s", error)
            self._closing.wait(_PAUSE)

    def _require(self, reached: object, client: Client) -> None:
        if not reached:
            raise why_unreachable(client.trouble, self.server.hosts)

    def _await(self, event: threading.Event, patience_seconds: float) -> None:
        """Wait for *event*, for the end of patience or for `close`, whichever comes first."""
        until = time.monotonic() + patience_seconds
        while not event.is_set() and not self._closing.is_set() and time.monotonic() < until:
            event.wait(min(_GLANCE, patience_seconds))
