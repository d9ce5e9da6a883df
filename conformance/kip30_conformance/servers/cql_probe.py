"""Probing whether a Cassandra node serves, in its own protocol."""

import socket
import ssl
import struct
from enum import IntEnum

_VERSION = 4
_HEAD = struct.Struct(">BBhBi")
_QUORUM = 4
_WITHOUT_COLUMNS = 2
_PROTOCOL = {"CQL_VERSION": "3.0.0"}
_PEERS = "SELECT peer_port FROM system.peers_v2"
_ROWS_AT = 12


class _Frame(IntEnum):
    STARTUP = 1
    READY = 2
    AUTHENTICATE = 3
    QUERY = 7
    RESULT = 8


def serves(address: tuple[str, int], question: str, within: float, *, peers: int = 0) -> bool:
    """Return whether a quorum answers the *question* that is sent to a node.

    If a node requires a login or a certificate first, whether it says so.

    Args:
        address: Of the node.
        question: In CQL.
        within: Seconds for each answer.
        peers: How many others the node must have in its ring, dead or alive.
    """
    try:
        return _serves(address, question, within, peers)
    except (ConnectionResetError, ConnectionAbortedError):
        return _wants_tls(address, within)
    except OSError:
        return False


def _serves(address: tuple[str, int], question: str, within: float, peers: int) -> bool:
    with socket.create_connection(address, within) as connection:
        greeted, _ = _asked(connection, _Frame.STARTUP, _greeting())
        if greeted != _Frame.READY:
            return greeted == _Frame.AUTHENTICATE
        answered, _ = _asked(connection, _Frame.QUERY, _query(question))
        return answered == _Frame.RESULT and _met(connection) >= peers


def _met(connection: socket.socket) -> int:
    """Return how many other nodes this one knows."""
    answered, body = _asked(connection, _Frame.QUERY, _query(_PEERS))
    return int.from_bytes(body[_ROWS_AT : _ROWS_AT + 4]) if answered == _Frame.RESULT else 0


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


def _asked(connection: socket.socket, kind: _Frame, body: bytes) -> tuple[int, bytes]:
    """Return the kind of the answer, and its body."""
    connection.sendall(_HEAD.pack(_VERSION, 0, 0, kind, len(body)) + body)
    *_, answer, size = _HEAD.unpack(_exactly(connection, _HEAD.size))
    return int(answer), _exactly(connection, size)


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
    options = struct.pack(">HB", _QUORUM, _WITHOUT_COLUMNS)
    return struct.pack(">i", len(question)) + question.encode() + options


def _short(word: str) -> bytes:
    return struct.pack(">H", len(word)) + word.encode()
