"""Sends and receives over one connection, from the end of the handshake on, frame by frame."""

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from kazoo.exceptions import SessionClosedRequireSaslError
from kazoo.protocol.connection import ConnectionDropped

from kip30.driver.clock import Clock
from kip30_backends.zookeeper.client.protocol import Check, Close, Multi, Request, Sync, read_event
from kip30_backends.zookeeper.errors import (
    WANTS_CREDENTIALS,
    NoAuth,
    Refused,
    SessionExpired,
    refusal,
)
from kip30_backends.zookeeper.request import Freshness, Operation

_SIZE = struct.Struct("!i")


class Frames:
    """The part of a stream that has arrived and is no whole frame yet."""

    def __init__(self) -> None:
        """Begin with the first byte of a frame."""
        self._parts: list[bytes] = []
        self._missing = _SIZE.size

    def cut(self, chunk: bytes) -> Iterator[memoryview]:
        """Add *chunk* and yield the frames that are whole by now."""
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
_BELL_BYTES = 4096
_READ_BYTES = 256 * 1024
_MOST_AT_ONCE = 256
_XIDS = 2**31 - 1

_SYNC: Request = Sync("/")
"""Has a follower catch up with the leader. The leader itself may answer before it has applied what
others have been told of already."""
_PROOF: Request = Multi((Check("/"),))
"""Changes nothing. Unlike a sync, which a leader answers alone, it takes a quorum's consent."""


class Party(Protocol):
    """Who has something to send, and hears what comes back, on the connection's thread."""

    def proven(self, sent_at: float) -> None:
        """Take note that a quorum was there for what left at *sent_at*."""
        ...

    def outgoing(self, most: int) -> Sequence[Operation[Any]]:
        """Return what is to be sent."""
        ...

    def answered(self, operation: Operation[Any], outcome: object) -> None:
        """Take an answer to a request of *operation*."""
        ...

    def happened(self, path: str, *, is_data: bool) -> None:
        """Take note that something happened to the node *path*, to its data alone if *is_data*."""
        ...


class Link(NamedTuple):
    """A connection whose handshake is done.

    Attributes:
        sock: Never blocks.
        bell: Can be read from once *button* was written to.
        button: The other end of *bell*.
        write_seconds: How long the server may take nothing.
        pending: The requests under way, with who waits for the answer: what is left when the
            connection ends is told so.
        progressed: Told how far the server's history went.
    """

    sock: socket.socket
    bell: socket.socket
    button: socket.socket
    write_seconds: float
    pending: deque[tuple[Request, Any, int]]
    progressed: Callable[[int], None]


class Exchange:
    """Requests and answers, in the same order.

    Attributes:
        unproven: The oldest question to the servers that is not answered yet, if there is one.
        follows: Whether a `Sync` makes the server catch up.
    """

    def __init__(self, link: Link, party: Party, clock: Clock) -> None:
        """Be about to send, first of all a request that takes a quorum."""
        self.unproven: Freshness | None = None
        self.follows = False
        self._link = link
        self._party = party
        self._clock = clock
        self._frames = Frames()
        # The number of the newest request; answers come in the order of these.
        self._xid = 0
        # Whether a proof of the session is to be sent, whether the thread was asked to look for
        # what there is to send, and whether the session is to be closed. Any thread sets them;
        # the connection's own resets the first two.
        self._prove = True
        self._woken = False
        self._closing = False
        # Whether the server has refused a request because the session is over. It is no longer
        # asked then; once it has answered the rest, a new connection shows what is true.
        self._expired = False

    def wake(self) -> None:
        """Have the thread look for what there is to send."""
        if not self._woken:
            self._woken = True
            self._ring()

    def prove(self) -> None:
        """Have a quorum of the servers agree on something, as a proof of the session."""
        self._prove = True
        self.wake()

    def close(self) -> None:
        """Have the session closed, and send nothing any more."""
        self._closing = True
        self._ring()

    def serve(self) -> None:
        """Send and receive until the session is closed.

        Raises:
            ConnectionDropped: The connection is lost.
            SessionClosedRequireSaslError: The server wants credentials.
            OSError: The connection is lost.
        """
        bell = self._link.bell.fileno()
        poller = select.poll()
        for one in (self._link.sock, bell):
            poller.register(one, select.POLLIN)
        closed = False
        while not closed:
            ready = [descriptor for descriptor, _ in poller.poll()]
            if bell in ready:
                self._send()
            if ready != [bell]:
                closed = self._receive()

    def _ring(self) -> None:
        with suppress(OSError):  # a full pipe wakes; one that is closed wakes nobody any more
            self._link.button.send(b"\0")

    def _send(self) -> None:
        self._link.bell.recv(_BELL_BYTES)
        self._woken = False
        frames = bytearray()
        if self._closing:
            self._add(frames, Close(), None)
        elif not self._expired:
            self._add_operations(frames)
        self._write(memoryview(bytes(frames)))

    def _write(self, rest: memoryview) -> None:
        sock = self._link.sock
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not _is_writable(sock, self._link.write_seconds):
                    raise

    def _add_operations(self, frames: bytearray) -> None:
        operations = self._party.outgoing(_MOST_AT_ONCE)
        if self._prove:
            self._add_proof(frames)
        fresh = any(one.ask.fresh for one in operations)
        freshness = self._add_catching_up(frames) if fresh else None
        for one in operations:
            one.freshness = freshness if one.ask.fresh else None
            for request in one.ask.requests:
                self._add(frames, request, one)
        if len(operations) == _MOST_AT_ONCE:
            self.wake()

    def _add_catching_up(self, frames: bytearray) -> Freshness:
        freshness = self._awaited()
        request = _SYNC if self.follows else _PROOF
        self._add(frames, request, _Waiter(freshness, self._answered))
        return freshness

    def _add_proof(self, frames: bytearray) -> None:
        self._prove = False
        self._add(frames, _PROOF, _Waiter(self._awaited(), self._proven))

    def _awaited(self) -> Freshness:
        freshness = Freshness(self._clock.now())
        self.unproven = self.unproven or freshness
        return freshness

    def _add(self, frames: bytearray, request: Request, waiter: Any) -> None:
        self._xid = self._xid % _XIDS + 1
        body = request.serialize()
        frames += _REQUEST.pack(len(body) + 8, self._xid, request.type)
        frames += body
        self._link.pending.append((request, waiter, self._xid))

    def _answered(self, freshness: Freshness) -> None:
        if self.unproven is freshness:
            self.unproven = None

    def _proven(self, freshness: Freshness) -> None:
        self._answered(freshness)
        if freshness.refused is None or isinstance(freshness.refused, NoAuth):
            self._party.proven(freshness.sent_at)

    def _receive(self) -> bool:
        """Take what has arrived, and say whether the server has closed the session."""
        closed = False
        for chunk in _chunks(self._link.sock):
            for frame in self._frames.cut(chunk):
                closed = self._take(frame) or closed
        if self._expired and not closed and not self._link.pending:
            # A server does not always hang up: not on a connection that took up the session while
            # another connection's request to close it was queued.
            raise ConnectionDropped("the server says that the session is over")
        return closed

    def _take(self, frame: memoryview) -> bool:
        xid, zxid, error = _HEADER.unpack_from(frame, 0)
        if xid == _EVENT:
            path, is_data = read_event(frame, _HEADER.size)
            self._party.happened(path, is_data=is_data)
            return False
        if error == WANTS_CREDENTIALS:
            raise SessionClosedRequireSaslError
        request, waiter, expected = self._link.pending.popleft()
        if xid != expected:
            raise ConnectionDropped("the server answers out of order")
        if zxid > 0:
            self._link.progressed(zxid)
        outcome = refusal(error) if error else _outcome(request, frame)
        self._expired = self._expired or isinstance(outcome, SessionExpired)
        if isinstance(waiter, _Waiter):
            waiter.take(outcome)
        elif waiter is not None:
            self._party.answered(waiter, outcome)
        return isinstance(request, Close)


class _Waiter(NamedTuple):
    """Who waits for the answer to what belongs to no operation."""

    freshness: Freshness
    answered: Callable[[Freshness], None]

    def take(self, outcome: object) -> None:
        if isinstance(outcome, Refused):
            self.freshness.refused = outcome
        self.answered(self.freshness)

    def set_exception(self, _error: Exception) -> None:
        """Hear from kazoo that the connection is lost."""


def _outcome(request: Request, frame: memoryview) -> Any:
    try:
        return request.deserialize(frame, _HEADER.size)[0]
    except Refused as refused:
        return refused


def _chunks(sock: socket.socket) -> Iterator[bytes]:
    """Yield what has arrived; of a TLS record all, because what is left of it causes no event."""
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
