"""One kazoo client: the only place that knows kazoo, and the private parts of it that kip30 needs.

kazoo keeps the connection: hosts, handshake, authentication, pings, reconnection. What is sent and
received between goes by here, because kazoo offers no way to send what it does not know, to learn
when a request left, or to hear of an event of a persistent watch.
"""

import logging
import random
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionDropped
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from typing_extensions import override

from kip30.clock import Clock
from kip30_backends.zookeeper.frames import Frames
from kip30_backends.zookeeper.handler import Handler, WaitTimeout
from kip30_backends.zookeeper.outbox import Freshness, Operation
from kip30_backends.zookeeper.refusals import NoAuth, Refused, refusal
from kip30_backends.zookeeper.wire import Check, Close, Multi, Request, Sync, read_event

_HEADER = struct.Struct("!iqi")
_REQUEST = struct.Struct("!iii")
_EVENT = -1
_TIMEOUT_PER_READ = 1.5
_READ_BYTES = 256 * 1024
_MOST_AT_ONCE = 256
_XIDS = 2**31 - 1

_THREAD = "kip30-zookeeper-mode"
_FOLLOWING = {"follower", "observer", "standalone"}
_SYNC: Request = Sync("/")
"""Has a follower catch up with the leader. The leader itself may answer before it has applied what
others have been told of already."""
_PROOF: Request = Multi((Check("/"),))
"""Changes nothing. Unlike a sync, which a leader answers alone, it takes a quorum's consent."""

log: logging.Logger = logging.getLogger(__name__)


class Identity(NamedTuple):
    """What a session can be taken up again with. The password is shown nowhere."""

    ident: int
    password: bytes

    @override
    def __repr__(self) -> str:
        """Show the session's id alone."""
        return f"<session {self.ident:#x}>"


class Server(NamedTuple):
    """How servers are reached."""

    hosts: str
    tls: ssl.SSLContext | None
    digest: str | None
    sasl: dict[str, str] | None
    connect_seconds: float

    @override
    def __repr__(self) -> str:
        """Show no credentials."""
        return f"<servers {self.hosts}>"


class Owner(Protocol):
    """Who hears of what happens to a connection, on the connection's thread."""

    def connected(self, client: "Client", sent_at: float, timeout_seconds: float) -> None:
        """Take note that the session is confirmed by an answer to what left at *sent_at*."""
        ...

    def over(self, client: "Client", reason: str) -> None:
        """Take note that the session is over."""
        ...

    def proven(self, sent_at: float) -> None:
        """Take note that a quorum was there for what left at *sent_at*."""
        ...

    def outgoing(self, most: int) -> Sequence[Operation[Any]]:
        """Return what is to be sent."""
        ...

    def answered(self, operation: Operation[Any], outcome: object) -> None:
        """Take an answer to a request of *operation*."""
        ...

    def happened(self, path: str) -> None:
        """Take note that something happened to the node *path*."""
        ...


class Client:
    """One session with the servers, on a thread of its own."""

    def __init__(  # noqa: PLR0913  each says one thing about the session
        self,
        server: Server,
        owner: Owner,
        clock: Clock,
        timeout_seconds: float,
        *,
        identity: Identity | None = None,
        unanswered_gap_seconds: float = 0.0,
    ) -> None:
        """Be about to connect, taking up *identity* if there is one.

        A server that does not answer may have heard all the same, and have renewed the session;
        after all of them the next attempt begins so much after the last one. Who hangs up has not.
        """
        self.trouble: BaseException | None = None
        self.peer = ""
        self.live = threading.Event()
        self.expired = False
        self.unproven: Freshness | None = None
        self._owner = owner
        self._clock = clock
        self._prove = True
        self._woken = False
        self._follows = False
        self._closing = False
        self._write_seconds = timeout_seconds
        self._unanswered_gap_seconds = unanswered_gap_seconds
        self._servers = len(server.hosts.split(","))
        self._silences = 0
        self._frames = Frames()
        self._kazoo = _kazoo(server, timeout_seconds, identity)
        self._connection = self._kazoo._connection  # noqa: SLF001  see the module
        self._connection._connect_attempt = self._attempt  # noqa: SLF001
        self._kazoo.add_listener(self._state_changed)

    @property
    def identity(self) -> Identity:
        """What the session can be taken up again with."""
        return Identity(self._kazoo._session_id, self._kazoo._session_passwd)  # noqa: SLF001

    def start(self) -> None:
        """Begin to connect."""
        self._kazoo.start_async()

    def wake(self) -> None:
        """Have the thread look for what there is to send."""
        if self._woken:
            return
        self._woken = True
        with suppress(OSError, AttributeError):  # a full pipe wakes; without one it has ended
            self._connection._write_sock.send(b"\0")  # noqa: SLF001

    def prove(self) -> None:
        """Have a quorum of the servers agree on something, as a proof of the session."""
        self._prove = True
        self.wake()

    def drop(self) -> None:
        """Break the connection, so that another one is made."""
        with suppress(OSError, AttributeError):
            self._connection._socket.shutdown(2)  # noqa: SLF001

    def status(self) -> dict[str, str]:
        """Return what the server tells of itself, line by line; nothing if it does not."""
        try:
            told = self._told(b"srvr")
        except (OSError, AttributeError):
            return {}
        pairs = (line.partition(": ") for line in told.splitlines())
        return {key: value for key, colon, value in pairs if colon}

    def _told(self, word: bytes) -> str:
        """Ask the server a question that needs no session, by a connection of its own."""
        address = self._connection._socket.getpeername()[:2]  # noqa: SLF001
        host = self.peer.rpartition(":")[0]
        connect = self._kazoo.handler.create_connection
        with connect(address, hostname=host, timeout=self._write_seconds) as sock:
            sock.sendall(word)
            return b"".join(iter(partial(sock.recv, _READ_BYTES), b"")).decode("utf-8", "replace")

    def _ask_mode(self, connection: object) -> None:
        """Learn whether a `Sync` makes the server catch up; it stays what it is while connected."""
        follows = self.status().get("Mode") in _FOLLOWING
        if self._connection._socket is connection:  # noqa: SLF001
            self._follows = follows

    def close(self, patience_seconds: float) -> None:
        """End the session on the server, if it answers in time, and then the thread."""
        self._closing = True
        if self.live.is_set():
            self._woken = False
            self.wake()
            self._connection.connection_stopped.wait(patience_seconds)
        self.abandon()

    def abandon(self) -> None:
        """End the thread and the connection without a word to the server."""
        self._kazoo._stopped.set()  # noqa: SLF001
        routine = self._connection._connection_routine  # noqa: SLF001
        while routine is not None and routine.is_alive():
            self.drop()
            routine.join(0.02)
        with suppress(Exception):
            self._connection.connection_stopped.set()
            self._connection.close()

    def _attempt(self, host: str, address: str, port: int, retry: Any) -> object:
        """Connect and serve the connection until it breaks; kazoo calls this again and again."""
        begun = time.monotonic()
        self._become(KeeperState.CONNECTING)
        try:
            self._connect(host, address, port)
            retry.reset()
            self._serve()
        except SessionExpiredError as error:
            self.trouble = error
            self._become(KeeperState.EXPIRED_SESSION)
        except (AuthFailedError, SessionClosedRequireSaslError) as error:
            self.trouble = error
            self._become(KeeperState.AUTH_FAILED)
            return STOP_CONNECTING
        except (ConnectionDropped, WaitTimeout, OSError, struct.error) as error:
            self.trouble = error.__context__ or error
            log.info("no connection to %s:%s: %s", host, port, self.trouble)
            self._become(KeeperState.CONNECTING)
            if isinstance(error, WaitTimeout):
                self._unanswered(begun)
        else:
            self._become(KeeperState.CLOSED)
            return STOP_CONNECTING
        finally:
            self._hang_up()
        return None

    def _unanswered(self, begun: float) -> None:
        """Pause once each server was asked in vain; another one may answer at once."""
        self._silences += 1
        if self._silences % self._servers == 0:
            pause = begun + self._unanswered_gap_seconds - time.monotonic()
            self._kazoo._stopped.wait(max(0.0, pause))  # noqa: SLF001

    def _become(self, state: str) -> None:
        """Have kazoo end what waits for an answer that will not come any more."""
        if state != KeeperState.CONNECTED:
            self.live.clear()
            self.unproven = None
        self._kazoo._session_callback(state)  # noqa: SLF001

    def _connect(self, host: str, address: str, port: int) -> None:
        self._connection._socket, self._connection._xid = None, 0  # noqa: SLF001
        self._frames = Frames()
        sent_at = self._clock.now()
        read_ms, write_ms = self._connection._connect(host, address, port)  # noqa: SLF001
        self._write_seconds = write_ms / 1000
        self.peer = f"{host}:{port}"
        self._prove, self._woken, self._follows = True, False, False
        self.live.set()
        connection = self._connection._socket  # noqa: SLF001
        asking = partial(self._ask_mode, connection)
        threading.Thread(target=asking, name=_THREAD, daemon=True).start()
        self._owner.connected(self, sent_at, read_ms * _TIMEOUT_PER_READ / 1000)
        self.wake()

    def _serve(self) -> None:
        """Send and receive until the session is closed."""
        sock, bell = self._connection._socket, self._connection._read_sock  # noqa: SLF001
        poller = select.poll()
        for one in (sock, bell):
            poller.register(one, select.POLLIN)
        ringing, closed = bell.fileno(), False
        while not closed:
            ready = [descriptor for descriptor, _ in poller.poll()]
            if ringing in ready:
                self._send(sock, bell)
            if ready != [ringing]:
                closed = self._receive(sock)

    def _hang_up(self) -> None:
        sock = self._connection._socket  # noqa: SLF001
        if sock is not None:
            sock.close()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._kazoo._stopped.set()  # noqa: SLF001  kazoo would begin another session itself
            self.expired = self._kazoo._state == KeeperState.EXPIRED_SESSION  # noqa: SLF001
            self._owner.over(self, "the store ended the session")

    def _send(self, sock: socket.socket, bell: socket.socket) -> None:
        bell.recv(4096)
        self._woken = False
        frames = bytearray()
        if self._closing:
            self._add(frames, Close(), None)
        else:
            self._add_operations(frames)
        self._write(sock, memoryview(bytes(frames)))

    def _write(self, sock: socket.socket, rest: memoryview) -> None:
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not self._kazoo.handler.select([], [sock], [], self._write_seconds)[1]:
                    raise

    def _add_operations(self, frames: bytearray) -> None:
        operations = self._owner.outgoing(_MOST_AT_ONCE)
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
        request = _SYNC if self._follows else _PROOF
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
        xid = self._connection._xid = self._connection._xid % _XIDS + 1  # noqa: SLF001
        body = request.serialize()
        frames += _REQUEST.pack(len(body) + 8, xid, request.type)
        frames += body
        self._kazoo._pending.append((request, waiter, xid))  # noqa: SLF001

    def _answered(self, freshness: Freshness) -> None:
        if self.unproven is freshness:
            self.unproven = None

    def _proven(self, freshness: Freshness) -> None:
        self._answered(freshness)
        if freshness.refused is None or isinstance(freshness.refused, NoAuth):
            self._owner.proven(freshness.sent_at)

    def _receive(self, sock: socket.socket) -> bool:
        """Take whatever has arrived, and say whether the server has closed the session."""
        closed = False
        for chunk in _chunks(sock):
            for frame in self._frames.cut(chunk):
                closed = self._take(frame) or closed
        return closed

    def _take(self, frame: memoryview) -> bool:
        xid, zxid, error = _HEADER.unpack_from(frame, 0)
        if xid == _EVENT:
            self._owner.happened(read_event(frame, _HEADER.size))
            return False
        if error == SessionClosedRequireSaslError.code:
            raise SessionClosedRequireSaslError
        request, waiter, expected = self._kazoo._pending.popleft()  # noqa: SLF001
        if xid != expected:
            raise ConnectionDropped("the server answers out of order")
        if zxid > 0:
            self._kazoo.last_zxid = zxid
        outcome = refusal(error) if error else _outcome(request, frame)
        if isinstance(waiter, _Waiter):
            waiter.take(outcome)
        elif waiter is not None:
            self._owner.answered(waiter, outcome)
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
    """Yield what has arrived; of a TLS record all, for nobody tells of what is left of it."""
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


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """What is a warning to kazoo is daily business here, and below that it logs passwords."""

    @override
    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.INFO and super().isEnabledFor(level)

    @override
    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.info(msg, *args, **kwargs)


def _kazoo(server: Server, timeout_seconds: float, identity: Identity | None) -> Any:
    patience = cast("Any", KazooRetry)(max_tries=-1, delay=0.05, backoff=1.5, max_delay=0.5)
    hosts = server.hosts.split(",")
    random.SystemRandom().shuffle(hosts)
    client = KazooClient(
        hosts=",".join(hosts),
        randomize_hosts=False,
        timeout=timeout_seconds,
        client_id=identity,
        handler=Handler(server.tls, server.connect_seconds),
        connection_retry=patience,
        auth_data={("digest", server.digest)} if server.digest else None,
        sasl_options=dict(server.sasl) if server.sasl else None,
        logger=_Quiet(logging.getLogger(f"{__name__}.kazoo"), {}),
    )
    return cast("Any", client)
