"""Asking a Cassandra node whether it serves, in its own protocol."""

import socket
import ssl
import struct
from enum import IntEnum

_VERSION = 4
_HEAD = struct.Struct(">BBhBi")
_QUORUM = 4
_PROTOCOL = {"CQL_VERSION": "3.0.0"}


class _Frame(IntEnum):
    STARTUP = 1
    READY = 2
    AUTHENTICATE = 3
    QUERY = 7
    RESULT = 8


def serves(address: tuple[str, int], question: str, within: float) -> bool:
    """Say whether a quorum answers the *question* that a node is asked.

    Of a node that wants a login or a certificate first, whether it says so.
    """
    try:
        return _serves(address, question, within)
    except (ConnectionResetError, ConnectionAbortedError):
        return _wants_tls(address, within)
    except OSError:
        return False


def _serves(address: tuple[str, int], question: str, within: float) -> bool:
    with socket.create_connection(address, within) as connection:
        greeted = _asked(connection, _Frame.STARTUP, _greeting())
        if greeted == _Frame.READY:
            return _asked(connection, _Frame.QUERY, _query(question)) == _Frame.RESULT
        return greeted == _Frame.AUTHENTICATE


def _wants_tls(address: tuple[str, int], within: float) -> bool:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, within) as plain,
            trusting.wrap_socket(plain) as connection,
        ):
            return connection.version() is not None
    except OSError:
        return False


def _asked(connection: socket.socket, kind: _Frame, body: bytes) -> int:
    """Return of which kind the answer is."""
    connection.sendall(_HEAD.pack(_VERSION, 0, 0, kind, len(body)) + body)
    *_, answer, size = _HEAD.unpack(_exactly(connection, _HEAD.size))
    _exactly(connection, size)
    return int(answer)


def _exactly(connection: socket.socket, size: int) -> bytes:
    heard = b""
    while len(heard) < size:
        more = connection.recv(size - len(heard))
        if not more:
            raise ConnectionAbortedError
        heard += more
    return heard


def _greeting() -> bytes:
    words = [_short(word) for pair in _PROTOCOL.items() for word in pair]
    return struct.pack(">H", len(_PROTOCOL)) + b"".join(words)


def _query(question: str) -> bytes:
    return struct.pack(">i", len(question)) + question.encode() + struct.pack(">HB", _QUORUM, 0)


def _short(word: str) -> bytes:
    return struct.pack(">H", len(word)) + word.encode()
