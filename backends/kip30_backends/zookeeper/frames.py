"""Cutting what arrives into the frames that it was sent in."""

import struct
from collections.abc import Iterator

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
