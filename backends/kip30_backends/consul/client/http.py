"""HTTP/1.1 to one server: addresses, connections that are kept, answers by a deadline."""

import contextlib
import io
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import NamedTuple, cast

from typing_extensions import Buffer, override

from kip30.config import Address
from kip30.config.tls import ReloadingContext
from kip30.driver.kit.dialing import dial, left
from kip30_backends.consul.errors import (
    CUT_OFF,
    HUNG_UP,
    LATE,
    NO_ANSWER,
    UNSENT,
    UNTRUSTED,
    Failure,
    RequestFailedError,
)

_HTTP_1_1 = 11
_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA")


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    headers: HTTPMessage
    body: bytes


class HttpConnection:
    """An open connection, for one request at a time. Not thread-safe, but for `hang_up`."""

    def __init__(self, address: Address, tls: ReloadingContext | None, until: float) -> None:
        """Connect.

        Raises:
            RequestFailedError: It could not by *until*, a time of `time.monotonic`.
        """
        self._socket = _dialled(address, tls, until)
        # Between two requests a server sends nothing except the end of the connection.
        self._farewell = select.poll()
        self._farewell.register(self._socket, select.POLLIN)
        # False from the start of a request until its answer was read whole, because the rest of an
        # answer would be taken for the next one. `hang_up` writes it from any thread.
        self.reusable = True

    def ask(self, request: bytes, until: float) -> Answer:
        """Send *request* and return the answer.

        Raises:
            RequestFailedError: None came by *until*.
        """
        try:
            self._socket.settimeout(left(until))
        except TimeoutError as error:
            raise RequestFailedError(Failure(UNSENT, _said(error))) from error
        self.reusable = False
        try:
            self._socket.sendall(request)
            return self._answer(until)
        except (OSError, HTTPException, ValueError) as error:
            raise RequestFailedError(Failure(_kind(error), _said(error))) from error

    def is_idle(self) -> bool:
        """Return whether the server has sent nothing, not even the end of the connection."""
        return not self._farewell.poll(0)

    def hang_up(self) -> None:
        """End the request under way; from any thread."""
        self.reusable = False
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _answer(self, until: float) -> Answer:
        # `HTTPResponse` asks a socket only for a file.
        response = HTTPResponse(cast("socket.socket", _Source(self._socket, until)))
        response.begin()
        # Without a length, an answer ends with the connection (RFC 9112, 6.3), and one that is cut
        # off looks whole. Consul always sends the length.
        if response.version == _HTTP_1_1 and response.length is None and not response.chunked:
            raise ConnectionResetError("the server hung up in the middle of an answer")
        body = response.read()
        self.reusable = not response.will_close
        return Answer(response.status, response.headers, body)


class _Source(io.RawIOBase):
    """The bytes received over a socket, with one deadline for all of them."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        super().__init__()
        self._socket = connected
        self._until = until

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer) -> int:
        # Before each read: a socket's timeout applies to one read, the deadline to all of them.
        self._socket.settimeout(left(self._until))
        return self._socket.recv_into(buffer)


def _dialled(address: Address, tls: ReloadingContext | None, until: float) -> socket.socket:
    try:
        connected = dial(address, until)
    except OSError as error:
        raise RequestFailedError(Failure(UNSENT, _said(error))) from error
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(left(until))
        if tls is None:
            return connected
        return tls.current().wrap_socket(connected, server_hostname=address.host)
    except OSError as error:
        connected.close()
        raise RequestFailedError(Failure(_kind_of_handshake(error), _said(error))) from error


def _kind_of_handshake(error: OSError) -> int:
    broken_off = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
    return UNTRUSTED if isinstance(error, ssl.SSLError) and not broken_off else UNSENT


def _kind(error: Exception) -> int:
    """Return the kind of a failed request: a server may refuse a certificate only by then."""
    reason = str(error.reason) if isinstance(error, ssl.SSLError) else ""
    return UNTRUSTED if any(part in reason for part in _ABOUT_CERTIFICATES) else NO_ANSWER


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return LATE
    if isinstance(error, OSError):
        return str(error)
    return f"the answer is not HTTP ({str(error).strip()!r}): is this Consul's HTTP port?"


_MOST_KEPT = 16
_KEPT_SECONDS = 2.0


class IdleConnection(NamedTuple):
    """An idle connection, and since when."""

    since: float
    connection: HttpConnection


class Connections:
    """Lends connections, one to a request. Thread-safe.

    The connection that was used last is lent first. So those that many simultaneous requests left
    behind stay unused, and are dropped after a while.
    """

    def __init__(self, connect: Callable[[float], HttpConnection]) -> None:
        """Open connections with *connect*, each by a deadline."""
        self._connect = connect
        # Connections that wait for the next request, and all that are open. Under the lock.
        self._idle: deque[IdleConnection] = deque()
        self._open: set[HttpConnection] = set()
        # Whether to keep a connection after its request.
        self._keeping = True
        self._closed = False
        self._lock = threading.Lock()

    def send(self, request: bytes, until: float) -> Answer:
        """Return the answer to a request, over a connection that is free or a new one.

        Raises:
            RequestFailedError: None came by *until*.
        """
        connection = self._free() or self.dial(until)
        try:
            return self.converse(connection, request, until)
        finally:
            self._done_with(connection)

    def converse(self, connection: HttpConnection, request: bytes, until: float) -> Answer:
        """Return the answer to a request over *connection*.

        Raises:
            RequestFailedError: None came by *until*.
        """
        try:
            return connection.ask(request, until)
        except RequestFailedError as error:
            if self._closed:
                raise _closed(sent=error.failure.status != UNSENT) from error
            raise

    def dial(self, until: float) -> HttpConnection:
        """Return a new connection; the caller gives it back by `drop`.

        Raises:
            RequestFailedError: None could be opened by *until*.
        """
        self._check()
        connection = self._connect(until)
        with self._lock:
            self._open.add(connection)
            closed = self._closed
        # `close` may have run while this connected, and has not seen this connection.
        if closed:
            self.drop(connection)
            raise _closed()
        return connection

    def drop(self, connection: HttpConnection) -> None:
        """Close *connection*."""
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def rest(self) -> None:
        """Keep no unused connection until `resume`; requests can still be sent."""
        with self._lock:
            self._keeping = False
            idle = [one.connection for one in self._idle]
            self._idle.clear()
        for connection in idle:
            self.drop(connection)

    def resume(self) -> None:
        """Keep some connections for the next requests."""
        with self._lock:
            self._keeping = True

    def close(self) -> None:
        """End all requests, close all connections, and open no others."""
        with self._lock:
            self._closed = True
            idle, dialled = [one.connection for one in self._idle], list(self._open)
            self._idle.clear()
        for connection in dialled:
            connection.hang_up()
        for connection in idle:
            self.drop(connection)

    def abandon(self) -> None:
        """In a forked child: drop all connections, which stay open for the parent.

        If the child kept them, the server would not see them end while it lives.
        """
        self._lock = threading.Lock()
        self._closed = True
        self._idle.clear()
        inherited, self._open = self._open, set()
        for connection in inherited:
            connection.close()

    def _check(self) -> None:
        if self._closed:
            raise _closed()

    def _free(self) -> HttpConnection | None:
        while (connection := self._last_used()) is not None:
            if connection.is_idle():
                return connection
            self.drop(connection)
        return None

    def _last_used(self) -> HttpConnection | None:
        with self._lock:
            return self._idle.pop().connection if self._idle else None

    def _done_with(self, connection: HttpConnection) -> None:
        with self._lock:
            now = time.monotonic()
            wanted = self._keeping and not self._closed
            kept = connection.reusable and wanted and len(self._idle) < _MOST_KEPT
            surplus = [] if kept else [connection]
            # The least recently used ones are on the left.
            while self._idle and self._idle[0].since < now - _KEPT_SECONDS:
                surplus.append(self._idle.popleft().connection)
            if kept:
                self._idle.append(IdleConnection(now, connection))
        for one in surplus:
            self.drop(one)


def _closed(*, sent: bool = False) -> RequestFailedError:
    return RequestFailedError(Failure(CUT_OFF if sent else HUNG_UP, "closed"))
