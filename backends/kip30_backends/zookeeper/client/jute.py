"""Jute, the encoding of numbers, strings and node metadata in ZooKeeper's protocol."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")


class Stat(NamedTuple):
    """The server's metadata of a node.

    Attributes:
        czxid: The transaction that created it.
        mzxid: The one that last wrote its data.
        version: How often its data was written since.
        owner: The session it ends with, or the other meanings of `ephemeralOwner`; 0 if it stays.
        children: How many it has.
    """

    czxid: int
    mzxid: int
    version: int
    owner: int
    children: int = 0


def integer(number: int) -> bytes:
    """Return *number* as it is sent."""
    return _INT.pack(number)


def ustring(text: str) -> bytes:
    """Return *text* as it is sent."""
    return buffer(text.encode())


def buffer(data: bytes) -> bytes:
    """Return *data* as it is sent."""
    return _INT.pack(len(data)) + data


def vector(items: Sequence[bytes]) -> bytes:
    """Return *items* as they are sent together."""
    return _INT.pack(len(items)) + b"".join(items)


def read_integer(reply: memoryview, offset: int) -> tuple[int, int]:
    """Return the number at *offset*, and where it ends."""
    return _INT.unpack_from(reply, offset)[0], offset + _INT.size


def read_buffer(reply: memoryview, offset: int) -> tuple[bytes, int]:
    """Return the data at *offset*, and where it ends."""
    size, start = read_integer(reply, offset)
    end = start + max(0, size)
    return bytes(reply[start:end]), end


def read_data(reply: memoryview, offset: int) -> tuple[bytes | None, int]:
    """Return the data at *offset*, None if there is none, and where it ends."""
    data, end = read_buffer(reply, offset)
    return (None if _INT.unpack_from(reply, offset)[0] < 0 else data), end


def read_text(reply: memoryview, offset: int) -> tuple[str, int]:
    """Return the text at *offset*, and where it ends.

    Servers write a character beyond U+FFFF as two surrogates, which is not UTF-8.
    """
    text, end = read_buffer(reply, offset)
    try:
        return text.decode(), end
    except UnicodeDecodeError:
        pairs = text.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass")
        return pairs.decode("utf-16", "replace"), end


def read_texts(reply: memoryview, offset: int) -> tuple[list[str], int]:
    """Return the texts that are a vector at *offset*, and where it ends."""
    count, start = read_integer(reply, offset)
    texts: list[str] = []
    size_of = _INT.unpack_from
    for _ in range(count):  # listing many keys is mostly this
        begin = start + 4
        start = begin + size_of(reply, start)[0]
        texts.append(str(reply[begin:start], "utf-8"))
    return texts, start


def read_stat(reply: memoryview, offset: int) -> tuple[Stat, int]:
    """Return the metadata of a node in *reply* at *offset*, and where it ends."""
    fields = _STAT.unpack_from(reply, offset)
    return Stat(fields[0], fields[1], fields[4], fields[7], fields[9]), offset + _STAT.size
