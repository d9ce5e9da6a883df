"""One connection that speaks HTTP/1.1, whose answers are there by a deadline or not at all."""

import contextlib
import select
import socket
import ssl
import time
from typing import NamedTuple

from kip30.config import Address
from kip30_backends.consul.errors import NO_ANSWER, UNSENT, UNTRUSTED, Failure, TroubleError

_CHUNK = 64 * 1024
_LEAST_SECONDS = 0.001
_END_OF_HEAD = b"\r\n\r\n"
_END_OF_LINE = b"\r\n"


class Answer(NamedTuple):
    """What a server answered; the names of *headers* are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """An open connection, for one request at a time. Not thread-safe, but for `hang_up`."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, until: float) -> None:
        """Connect.

        Raises:
            TroubleError: Not by *until*, which is a time of `time.monotonic`.
        """
        self._rest = b""
        self._socket = _dialled(address, tls, until)
        self.reusable = True

    def ask(self, request: bytes, until: float) -> Answer:
        """Send *request* and return the answer.

        Raises:
            TroubleError: There is none by *until*.
        """
        try:
            self._socket.settimeout(_left(until))
        except TimeoutError as error:
            raise TroubleError(Failure(UNSENT, _said(error))) from error
        self.reusable = False
        try:
            self._socket.sendall(request)
            answer = self._answer(until)
        except (OSError, ValueError, LookupError) as error:
            raise TroubleError(Failure(_kind(error), _said(error))) from error
        self.reusable = "content-length" in answer.headers or "transfer-encoding" in answer.headers
        self.reusable &= answer.headers.get("connection") != "close"
        return answer

    def is_idle(self) -> bool:
        """Say whether nothing has come from the server, not even its farewell."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def hang_up(self) -> None:
        """End whatever is under way; from any thread."""
        self.reusable = False
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the connection go."""
        self._socket.close()

    def _answer(self, until: float) -> Answer:
        head = self._through(_END_OF_HEAD, until)
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(_header(line) for line in lines if line)
        return Answer(int(first.split(" ", 2)[1]), headers, self._body(headers, until))

    def _body(self, headers: dict[str, str], until: float) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return self._chunks(until)
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]), until)
        return self._whole_rest(until)

    def _whole_rest(self, until: float) -> bytes:
        """Return what comes until the server hangs up, as it does if it tells no length."""
        parts = [self._rest]
        with contextlib.suppress(ConnectionResetError):
            while True:
                parts.append(self._received(until))
        self._rest = b"".join(parts)
        return self._taken(len(self._rest))

    def _chunks(self, until: float) -> bytes:
        parts: list[bytes] = []
        while size := int(self._through(_END_OF_LINE, until).split(b";")[0], 16):
            parts.append(self._exactly(size, until))
            self._exactly(len(_END_OF_LINE), until)
        while self._through(_END_OF_LINE, until) != _END_OF_LINE:
            pass
        return b"".join(parts)

    def _through(self, end: bytes, until: float) -> bytes:
        """Return what comes up to *end*, which is included."""
        while (at := self._rest.find(end)) < 0:
            self._rest += self._received(until)
        return self._taken(at + len(end))

    def _exactly(self, size: int, until: float) -> bytes:
        parts, missing = [self._rest], size - len(self._rest)
        while missing > 0:
            parts.append(self._received(until))
            missing -= len(parts[-1])
        self._rest = b"".join(parts)
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _received(self, until: float) -> bytes:
        self._socket.settimeout(_left(until))
        received = self._socket.recv(_CHUNK)
        if not received:
            raise ConnectionResetError("the server hung up")
        return received


def _dialled(address: Address, tls: ssl.SSLContext | None, until: float) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout=_left(until))
    except OSError as error:
        raise TroubleError(Failure(UNSENT, _said(error))) from error
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(_left(until))
        return tls.wrap_socket(connected, server_hostname=address.host) if tls else connected
    except OSError as error:
        connected.close()
        kind = UNTRUSTED if isinstance(error, ssl.SSLError) else UNSENT
        raise TroubleError(Failure(kind, _said(error))) from error


def _kind(error: Exception) -> int:
    """Say what it means that a request failed: a server may want a certificate only by then."""
    wants_certificate = isinstance(error, ssl.SSLError) and "CERTIFICATE" in str(error.reason)
    return UNTRUSTED if wants_certificate else NO_ANSWER


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left < 0:
        raise TimeoutError("no answer in time")
    return max(_LEAST_SECONDS, left)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


def _said(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
