"""Noticing what other processes change: by inotify, or by polling.

A writer signals *after* its commit, because the bytes of a commit are in the log before the commit
can be read. It may die in between, so a process that waits for the signal also polls from time to
time. The kernel's file notifications (Linux) are called through ctypes.
"""

import ctypes
import errno
import os
import select
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from kip30.errors import ConfigError
from kip30_backends.embedded.errors import raised_by_program

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
    """Return whether this system has inotify."""
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


_LOOK_ANYWAY = 0.25


class ChangeSignal:
    """The signal of writers: one byte of a file, written again."""

    def __init__(self, file: Path) -> None:
        """Signal by writing to *file*."""
        self._descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW)

    def notify(self) -> None:
        """Notify every listener of a change. Never fails, because listeners also poll."""
        try:
            os.pwrite(self._descriptor, b"\0", 0)
        except OSError as error:
            if raised_by_program(error):
                raise

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class SignalReader(ABC):
    """The events that one thread waits for; any thread may `wake` it."""

    def __init__(self, look_seconds: float) -> None:
        """Start with no event except `wake`; the thread should poll every *look_seconds*."""
        self.look_seconds = look_seconds
        self._read_end, self._write_end = os.pipe()
        self._open = [self._read_end, self._write_end]
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)

    @abstractmethod
    def heard(self) -> Collection[str] | None:
        """Return the session files that were closed since; None if that is unknown."""

    def wait(self, seconds: float) -> Collection[str] | None:
        """Wait for up to *seconds*, and return what `heard` returns."""
        if self._poll.poll(seconds * 1000):
            self._drain()
        return self.heard()

    def wake(self) -> None:
        """End the current `wait`, or the next one."""
        with suppress(BlockingIOError):  # full, so it is woken already
            os.write(self._write_end, b"\0")

    def close(self) -> None:
        """Close all descriptors. Idempotent."""
        while self._open:
            os.close(self._open.pop())

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_end, 4096)


class InotifyReader(SignalReader):
    """Notified by inotify, at once."""

    def __init__(self, signal_file: Path, sessions: Path) -> None:
        """Watch *signal_file* and the directory *sessions*.

        Raises:
            OSError: The system or the user's limits do not allow it.
        """
        super().__init__(_LOOK_ANYWAY)
        try:
            self._descriptor = start()
            self._open.append(self._descriptor)
            watch(self._descriptor, signal_file, MODIFY)
            mask = CLOSE_WRITE | DELETE
            self._sessions = watch(self._descriptor, sessions, mask)
        except BaseException:
            self.close()
            raise
        self._poll.register(self._descriptor, select.POLLIN)

    @override
    def heard(self) -> Collection[str] | None:
        events = read(self._descriptor)
        if any(event.mask & OVERFLOW for event in events):
            return None
        return {event.name for event in events if event.watch == self._sessions}


class PollingReader(SignalReader):
    """Gets no notifications, and polls often."""

    @override
    def heard(self) -> Collection[str] | None:
        return None


def must_poll(notify: str) -> bool:
    """Return whether the setting *notify* means polling on this system.

    Raises:
        ConfigError: It requires a feature that the system lacks.
    """
    if notify == "inotify" and not is_available():
        raise ConfigError("plugin.embedded.notify = inotify: not on this system; use poll or auto")
    return notify == "poll" or not is_available()
