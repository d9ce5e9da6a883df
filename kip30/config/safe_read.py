"""Reading a file that someone else may have put there: checked, bounded, not waiting by default."""

import errno
import os
import select
import stat
from pathlib import Path
from typing import NamedTuple

from kip30.config.trust import untrusted_reason

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK

_WRITER_SECONDS = 10.0
"""How long a named pipe may have no writer: the program that writes may be started after this one.
"""


class Contents(NamedTuple):
    """Contents of a file.

    Attributes:
        raw: Its bytes.
        untrusted_reason: Why other users could have written it; empty if they could not.
    """

    raw: bytes
    untrusted_reason: str


def read(file: Path, limit: int, *, may_wait: bool = False) -> Contents:
    """Read *file*. Owner and mode are those of the open descriptor, which cannot be swapped.

    Args:
        file: The file to read. With *may_wait* it may be a pipe or a device, read to its end;
            otherwise only a regular file.
        limit: How many bytes it may hold.
        may_wait: Whether to wait for the writer of a pipe, and that for as long as it writes.

    Raises:
        OSError: It cannot be read, is larger than *limit*, is no regular file, or is a named pipe
            that no program writes to.
        ConfigError: ``$KIP30_TRUSTED_USERS`` names a user that does not exist.
    """
    descriptor = os.open(file, _FLAGS)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        _require_kind(status.st_mode, may_wait=may_wait)
        begun = b""
        if may_wait:
            if stat.S_ISFIFO(status.st_mode) and file.resolve().exists():
                begun = _begun(descriptor)
            os.set_blocking(descriptor, True)
        raw = begun + stream.read(limit + 1 - len(begun))
        if len(raw) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit // 1024} KiB")
        return Contents(raw, untrusted_reason(file, status, descriptor))


def _begun(descriptor: int) -> bytes:
    """Wait until a named pipe has a writer, and return what had to be read to know that.

    Raises:
        OSError: It has none.
    """
    opened = select.poll()
    opened.register(descriptor, select.POLLIN)
    if opened.poll(_WRITER_SECONDS * 1000):
        return b""
    try:  # without a writer it is at its end
        begun = os.read(descriptor, 1)
    except BlockingIOError:
        return b""
    if not begun:
        raise OSError(errno.EPIPE, "it is a pipe, and no program has opened it to write")
    return begun


def _require_kind(mode: int, *, may_wait: bool) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not (may_wait or stat.S_ISREG(mode)):
        raise OSError(errno.EINVAL, "not a regular file, which can be read again: save it as one")
