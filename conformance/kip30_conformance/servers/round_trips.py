"""Counting turns of a conversation: a request of the client, and the answer of the server."""

from collections.abc import Iterator
from typing import Protocol

from typing_extensions import override

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES = 9
_OF_CALLS = {0, 1}
"""The types DATA and HEADERS of RFC 9113; pings and window updates are of no call."""


class Turns:
    """The bytes of one connection, in HTTP/2 or any other protocol."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self._client: _Speech | None = None
        self._server: _Speech = _Anything()
        self._asked = False

    def ask(self, burst: bytes) -> None:
        """Count bytes of the client."""
        if self._client is None:
            self._client, self._server = _speeches(burst)
        self._asked |= self._client.speaks(burst)

    def answer(self, burst: bytes) -> bool:
        """Count bytes of the server; return whether they answer a request."""
        is_answer = self._server.speaks(burst) and self._asked
        self._asked &= not is_answer
        return is_answer


class _Speech(Protocol):
    """One direction."""

    def speaks(self, burst: bytes) -> bool:
        """Return whether the next bytes have content, and are not just keepalive."""
        ...


class _Anything(_Speech):
    @override
    def speaks(self, burst: bytes) -> bool:
        return bool(burst)


class _Frames(_Speech):
    """Frames of HTTP/2, after *skipped* bytes that are not frames."""

    def __init__(self, *, skipped: int = 0) -> None:
        self._skipped = skipped
        self._head = b""

    @override
    def speaks(self, burst: bytes) -> bool:
        return not _OF_CALLS.isdisjoint(list(self._types(burst)))

    def _types(self, burst: bytes) -> Iterator[int]:
        """Yield the type of each frame whose head ends in *burst*."""
        while burst := self._after_payload(burst):
            lacking = _HEAD_BYTES - len(self._head)
            self._head, burst = self._head + burst[:lacking], burst[lacking:]
            if len(self._head) == _HEAD_BYTES:
                self._skipped = int.from_bytes(self._head[:3])
                yield self._head[3]
                self._head = b""

    def _after_payload(self, burst: bytes) -> bytes:
        skipped = min(self._skipped, len(burst))
        self._skipped -= skipped
        return burst[skipped:]


def _speeches(first: bytes) -> tuple[_Speech, _Speech]:
    if first.startswith(_PREFACE):
        return _Frames(skipped=len(_PREFACE)), _Frames()
    return _Anything(), _Anything()
