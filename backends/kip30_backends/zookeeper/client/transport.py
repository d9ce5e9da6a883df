"""Sends and receives over one connection, from the end of the handshake on, frame by frame."""

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from kazoo.exceptions import SessionClosedRequireSaslError
from kazoo.protocol.connection import ConnectionDropped

from kip30.driver.clock import Clock
from kip30_backends.zookeeper.calls import PendingOperation, SyncPoint
from kip30_backends.zookeeper.client.messages import (
    CheckVersion,
    Close,
    Event,
    Multi,
    Request,
    Sync,
    read_event,
)
from kip30_backends.zookeeper.errors import (
    WANTS_CREDENTIALS,
    NoAuth,
    RequestRefused,
    SessionExpired,
    refusal,
)

_SIZE = struct.Struct("!i")


class Frames:
    """The part of a stream that has arrived and is not a whole frame yet."""

    def __init__(self) -> None:
        """Start with the first byte of a frame."""
        self._parts: list[bytes] = []
        self._missing = _SIZE.size

    def cut(self, chunk: bytes) -> Iterator[memoryview]:
        """Add *chunk* and yield the frames that are now complete."""
        self._parts.append(chunk)
        self._missing -= len(chunk)
        if self._missing > 0:
            return
        whole = memoryview(b"".join(self._parts) if self._parts[1:] else chunk)
        start = 0
        while (end := _end(whole, start)) <= len(whole):
            yield whole[start + _SIZE.size : end]
            start = end
        self._parts = [bytes(whole[start:])]
        self._missing = end - len(whole)


def _end(whole: memoryview, start: int) -> int:
    """Return where the frame at *start* ends, or would if there were only its size."""
    body = start + _SIZE.size
    if body > len(whole):
        return body
    return body + int(_SIZE.unpack_from(whole, start)[0])


_HEADER = struct.Struct("!iqi")
_REQUEST = struct.Struct("!iii")
_EVENT = -1
_WAKEUP_BYTES = 4096
_READ_BYTES = 256 * 1024
_MOST_AT_ONCE = 256
_XIDS = 2**31 - 1

_SYNC: Request = Sync("/")
"""Has a follower catch up with the leader. The leader itself may answer before it has applied what
other clients already know."""
_PROOF: Request = Multi((CheckVersion("/"),))
"""Changes nothing. Unlike a sync, which a leader answers alone, it takes a quorum's consent, even
if it is refused."""


class RenewalTracker:
    """The requests of one connection that the servers' leader knows of. Not thread-safe.

    A follower notes which sessions it hears from, and reports them to the leader in its answers to
    the leader's pings, twice in a tick. A request that it forwards is checked by the leader, and
    renews nothing there. So an answer that took a quorum does not show that the session was renewed
    just now: the leader may count from a request before the last ping.

    A connection ends with the leader that it began under, and that leader renewed the session
    itself when it confirmed it at the beginning.

    A request that was answered a ping's interval before a sync was sent is reported: a ping comes
    between them, the follower answers it before it answers the sync, and the leader has read that
    before any request that follows the answer to the sync, because all these share one stream.

    Attributes:
        interval_seconds: How far apart the leader's pings are at most. Any thread may set it.
    """

    def __init__(self, connected_at: float, interval_seconds: float) -> None:
        """Begin with the session as it was confirmed, by a request sent at *connected_at*.

        Args:
            connected_at: In seconds, on the clock of all other times here.
            interval_seconds: How far apart the leader's pings are at most.
        """
        self.interval_seconds = interval_seconds
        self._reported_at = connected_at
        # When requests were sent and answered, the oldest first, that may not be reported yet.
        self._unreported: deque[tuple[float, float]] = deque()

    def answered(self, sent_at: float, answered_at: float) -> None:
        """Note a request that the server has answered."""
        self._unreported.append((sent_at, answered_at))

    def reported(self, sync_sent_at: float) -> float:
        """Return when the newest request was sent that the leader knows of for certain.

        That is so once a quorum has agreed to a request that followed the answer to a sync sent at
        *sync_sent_at*.
        """
        while self._unreported and self._unreported[0][1] + self.interval_seconds <= sync_sent_at:
            self._reported_at, _ = self._unreported.popleft()
        return self._reported_at


class TransportHandler(Protocol):
    """The source of requests and receiver of answers, on the connection's thread."""

    def proven(self, renewed_at: float, begun_at: float) -> None:
        """Record that a quorum confirmed that the session was renewed at *renewed_at* or later.

        The requests for that began at *begun_at*.
        """
        ...

    def outgoing(self, most: int) -> Sequence[PendingOperation[Any]]:
        """Return the requests to send."""
        ...

    def answered(self, operation: PendingOperation[Any], outcome: object) -> None:
        """Receive an answer to a request of *operation*."""
        ...

    def happened(self, event: Event) -> None:
        """Receive an event, behind the answers that the server sent before it."""
        ...


class OpenConnection(NamedTuple):
    """A connection whose handshake is done.

    Attributes:
        sock: Never blocks.
        wakeup_reader: Can be read from once *wakeup_writer* was written to.
        wakeup_writer: The other end of *wakeup_reader*.
        write_seconds: How long the server may stop reading.
        pending: The requests under way, each with the receiver of its answer: those left when the
            connection ends are notified of that.
        progressed: Called with the newest transaction of the server.
    """

    sock: socket.socket
    wakeup_reader: socket.socket
    wakeup_writer: socket.socket
    write_seconds: float
    pending: deque[tuple[Request, Any, int]]
    progressed: Callable[[int], None]


class Transport:
    """Requests and answers, in the same order.

    Attributes:
        unproven: The oldest unanswered request for a quorum, if there is one.
        follows: Whether a `Sync` makes the server catch up.
    """

    def __init__(
        self,
        connection: OpenConnection,
        handler: TransportHandler,
        clock: Clock,
        renewals: RenewalTracker,
    ) -> None:
        """Prepare to send, first of all the requests that prove the session."""
        self.unproven: SyncPoint | None = None
        self.follows = False
        self._connection = connection
        self._handler = handler
        self._clock = clock
        self._renewals = renewals
        self._frames = Frames()
        # The number of the newest request; answers come in the order of these.
        self._xid = 0
        # Whether a proof of the session is to be begun, whether the thread was asked to check for
        # requests to send, and whether the session is to be closed. Any thread sets them; the
        # connection's own resets the first two.
        self._prove = True
        self._woken = False
        self._closing = False
        # When the session was renewed at the latest, if a quorum agrees to the request that is to
        # be sent, and when its proof was begun. None if there is none.
        self._to_confirm: tuple[float, float] | None = None
        # Whether the server has refused a request because the session has ended, or because it
        # knows former credentials. It then gets no more requests; once it has answered the rest, a
        # new connection shows the true state.
        self._leaving = False

    def wake(self) -> None:
        """Make the thread check for requests to send."""
        if not self._woken:
            self._woken = True
            self._wake_loop()

    def prove(self) -> None:
        """Request a proof of the session: a sync, and then something that takes a quorum."""
        self._prove = True
        self.wake()

    def close(self) -> None:
        """Close the session, and send nothing after that."""
        self._closing = True
        self._wake_loop()

    def leave(self) -> None:
        """Send nothing more, and end once all is answered; for the thread that serves."""
        self._leaving = True

    def serve(self) -> None:
        """Send and receive until the session is closed.

        Raises:
            ConnectionDropped: The connection is lost.
            SessionClosedRequireSaslError: The server requires credentials.
            OSError: The connection is lost.
        """
        wakeup_reader = self._connection.wakeup_reader.fileno()
        poller = select.poll()
        for one in (self._connection.sock, wakeup_reader):
            poller.register(one, select.POLLIN)
        closed = False
        while not closed:
            ready = [descriptor for descriptor, _ in poller.poll()]
            if wakeup_reader in ready:
                self._send()
            if ready != [wakeup_reader]:
                closed = self._receive()

    def _wake_loop(self) -> None:
        with suppress(OSError):  # a full pipe wakes the thread; a closed one wakes none
            self._connection.wakeup_writer.send(b"\0")

    def _send(self) -> None:
        self._connection.wakeup_reader.recv(_WAKEUP_BYTES)
        self._woken = False
        frames = bytearray()
        if self._closing:
            self._add(frames, Close(), None)
        elif not self._leaving:
            self._add_operations(frames)
        self._write(memoryview(bytes(frames)))

    def _write(self, rest: memoryview) -> None:
        sock = self._connection.sock
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not _is_writable(sock, self._connection.write_seconds):
                    raise

    def _add_operations(self, frames: bytearray) -> None:
        operations = self._handler.outgoing(_MOST_AT_ONCE)
        if self._prove:
            self._prove = False
            self._add(frames, _SYNC, _Waiter(self._awaited(), self._synced))
        if self._to_confirm is not None:
            confirmed = partial(self._proven, *self._to_confirm)
            self._to_confirm = None
            self._add(frames, _PROOF, _Waiter(self._awaited(), confirmed))
        is_needed = any(one.batch.needs_sync for one in operations)
        sync_point = self._add_catching_up(frames) if is_needed else None
        for one in operations:
            one.sync_point = sync_point if one.batch.needs_sync else None
            for request in one.batch.requests:
                self._add(frames, request, one)
        if len(operations) == _MOST_AT_ONCE:
            self.wake()

    def _add_catching_up(self, frames: bytearray) -> SyncPoint:
        sync_point = self._awaited()
        request = _SYNC if self.follows else _PROOF
        self._add(frames, request, _Waiter(sync_point, self._answered))
        return sync_point

    def _awaited(self) -> SyncPoint:
        sync_point = SyncPoint(self._clock.now())
        self.unproven = self.unproven or sync_point
        return sync_point

    def _add(self, frames: bytearray, request: Request, waiter: Any) -> None:
        self._xid = self._xid % _XIDS + 1
        body = request.serialize()
        frames += _REQUEST.pack(len(body) + 8, self._xid, request.type)
        frames += body
        self._connection.pending.append((request, waiter, self._xid))

    def _answered(self, sync_point: SyncPoint) -> None:
        if self.unproven is sync_point:
            self.unproven = None

    def _synced(self, sync_point: SyncPoint) -> None:
        self._answered(sync_point)
        if sync_point.refused is None:
            begun_at = sync_point.sent_at
            self._to_confirm = self._renewals.reported(begun_at), begun_at
            self._touched(sync_point)
            self.wake()

    def _touched(self, sync_point: SyncPoint) -> None:
        self._renewals.answered(sync_point.sent_at, self._clock.now())

    def _proven(self, renewed_at: float, begun_at: float, sync_point: SyncPoint) -> None:
        self._answered(sync_point)
        if sync_point.refused is None:
            self._touched(sync_point)
            self._handler.proven(renewed_at, begun_at)

    def _receive(self) -> bool:
        """Receive what has arrived, and return whether the server has closed the session."""
        closed = False
        for chunk in _chunks(self._connection.sock):
            for frame in self._frames.cut(chunk):
                closed = self._take(frame) or closed
        if self._leaving and not closed and not self._connection.pending:
            # A server does not always close the connection: not one that took up the session while
            # another connection's request to close it was queued.
            raise ConnectionDropped("the session is over, or the credentials have changed")
        return closed

    def _take(self, frame: memoryview) -> bool:
        xid, zxid, error = _HEADER.unpack_from(frame, 0)
        if xid == _EVENT:
            self._handler.happened(read_event(frame, _HEADER.size))
            return False
        if error == WANTS_CREDENTIALS:
            raise SessionClosedRequireSaslError
        request, waiter, expected = self._connection.pending.popleft()
        if xid != expected:
            raise ConnectionDropped("the server answers out of order")
        if zxid > 0:
            self._connection.progressed(zxid)
        outcome = refusal(error) if error else _outcome(request, frame)
        self._leaving = self._leaving or isinstance(outcome, SessionExpired)
        if isinstance(waiter, _Waiter):
            waiter.take(outcome)
        elif waiter is not None:
            self._handler.answered(waiter, outcome)
        return isinstance(request, Close)


class _Waiter(NamedTuple):
    """Receives the answer to a request that belongs to no operation."""

    sync_point: SyncPoint
    answered: Callable[[SyncPoint], None]

    def take(self, outcome: object) -> None:
        # A client that may not read the servers' root is refused `_PROOF` with a quorum's consent.
        if isinstance(outcome, RequestRefused) and not isinstance(outcome, NoAuth):
            self.sync_point.refused = outcome
        self.answered(self.sync_point)

    def set_exception(self, _error: Exception) -> None:
        """Handle the loss of the connection, which kazoo reports."""


def _outcome(request: Request, frame: memoryview) -> Any:
    try:
        return request.deserialize(frame, _HEADER.size)[0]
    except RequestRefused as refused:
        return refused


def _chunks(sock: socket.socket) -> Iterator[bytes]:
    """Yield the received bytes; all of a TLS record, because its rest causes no event."""
    with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        while True:
            chunk = sock.recv(_READ_BYTES)
            if not chunk:
                raise ConnectionDropped("closed by the server")
            yield chunk
            if not getattr(sock, "pending", _nothing_pending)():
                return


def _nothing_pending() -> int:
    return 0


def _is_writable(sock: socket.socket, seconds: float) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    return bool(poller.poll(seconds * 1000))
