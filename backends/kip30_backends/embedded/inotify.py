"""The kernel's file notifications (Linux), called through ctypes."""

import ctypes
import errno
import os
import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple

CLOSE_WRITE = 0x8
MODIFY = 0x2
DELETE = 0x200
OVERFLOW = 0x4000

_HEAD = struct.Struct("iIII")
_BUFFER = 64 * 1024


class Event(NamedTuple):
    """Something that happened to a watched file or in a watched directory."""

    watch: int
    mask: int
    name: str


@cache
def _libc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


def is_available() -> bool:
    """Say whether this system has inotify."""
    return _libc() is not None


def start() -> int:
    """Return the descriptor of a new, empty set of watches.

    Raises:
        OSError: This system has no inotify, or the user has too many sets already.
    """
    library = _libc()
    if library is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _checked(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def watch(descriptor: int, path: Path, mask: int) -> int:
    """Add *path* to the set *descriptor*; return the number of the watch.

    Raises:
        OSError: The path is gone, or the user has too many watches.
    """
    library = _libc()
    if library is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _checked(library.inotify_add_watch(descriptor, os.fsencode(path), mask))


def read(descriptor: int) -> list[Event]:
    """Return what has happened since; empty if nothing has."""
    try:
        data = os.read(descriptor, _BUFFER)
    except BlockingIOError:
        return []
    events: list[Event] = []
    offset = 0
    while offset < len(data):
        number, mask, _, length = _HEAD.unpack_from(data, offset)
        start_of_name = offset + _HEAD.size
        offset = start_of_name + length
        name = os.fsdecode(data[start_of_name:offset].rstrip(b"\0"))
        events.append(Event(number, mask, name))
    return events


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
