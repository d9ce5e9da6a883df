"""One connection that speaks HTTP/1.1, whose answers are there by a deadline or not at all."""

import contextlib
import io
import select
import socket
import ssl
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import NamedTuple, cast

from typing_extensions import Buffer, override

from kip30.config import Address
from kip30.config.tls import ReloadingContext
from kip30_backends.consul.dialling import dial, left
from kip30_backends.consul.errors import LATE, NO_ANSWER, UNSENT, UNTRUSTED, Failure, TroubleError

_HTTP_1_1 = 11
_ABOUT_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA")


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: HTTPMessage
    body: bytes


class Wire:
    """An open connection, for one request at a time. Not thread-safe, but for `hang_up`."""

    def __init__(self, address: Address, tls: ReloadingContext | None, until: float) -> None:
        """Connect.

        Raises:
            TroubleError: Not by *until*, which is a time of `time.monotonic`.
        """
        self._socket = _dialled(address, tls, until)
        self._farewell = select.poll()
        self._farewell.register(self._socket, select.POLLIN)
        self.reusable = True

    def ask(self, request: bytes, until: float) -> Answer:
        """Send *request* and return the answer.

        Raises:
            TroubleError: There is none by *until*.
        """
        try:
            self._socket.settimeout(left(until))
        except TimeoutError as error:
            raise TroubleError(Failure(UNSENT, _said(error))) from error
        self.reusable = False
        try:
            self._socket.sendall(request)
            return self._answer(until)
        except (OSError, HTTPException, ValueError) as error:
            raise TroubleError(Failure(_kind(error), _said(error))) from error

    def is_idle(self) -> bool:
        """Say whether nothing has come from the server, not even its farewell."""
        return not self._farewell.poll(0)

    def hang_up(self) -> None:
        """End whatever is under way; from any thread."""
        self.reusable = False
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the connection go."""
        self._socket.close()

    def _answer(self, until: float) -> Answer:
        # It asks a socket for nothing but a file.
        response = HTTPResponse(cast("socket.socket", _Source(self._socket, until)))
        response.begin()
        if response.version == _HTTP_1_1 and response.length is None and not response.chunked:
            raise ConnectionResetError("the server hung up in the middle of an answer")
        body = response.read()
        self.reusable = not response.will_close
        return Answer(response.status, response.headers, body)


class _Source(io.RawIOBase):
    """What comes over a socket by a deadline, for all of it together."""

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
        self._socket.settimeout(left(self._until))
        return self._socket.recv_into(buffer)


def _dialled(address: Address, tls: ReloadingContext | None, until: float) -> socket.socket:
    try:
        connected = dial(address, until)
    except OSError as error:
        raise TroubleError(Failure(UNSENT, _said(error))) from error
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(left(until))
        if tls is None:
            return connected
        return tls.current().wrap_socket(connected, server_hostname=address.host)
    except OSError as error:
        connected.close()
        raise TroubleError(Failure(_kind_of_handshake(error), _said(error))) from error


def _kind_of_handshake(error: OSError) -> int:
    broken_off = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
    return UNTRUSTED if isinstance(error, ssl.SSLError) and not broken_off else UNSENT


def _kind(error: Exception) -> int:
    """Say what it means that a request failed: a server may judge a certificate only by then."""
    reason = str(error.reason) if isinstance(error, ssl.SSLError) else ""
    return UNTRUSTED if any(part in reason for part in _ABOUT_CERTIFICATES) else NO_ANSWER


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return LATE
    if isinstance(error, OSError):
        return str(error)
    return f"no HTTP comes from there ({str(error).strip()!r}): is it Consul's port for that?"
