"""Recognising a file by its inode number, which the system may give to another file.

It does so once a file is removed and no descriptor is left of it: the file that takes its place is
then taken for the old one. A descriptor keeps the number. It is opened by O_PATH (Linux): SQLite
has its record locks on the same file, and closing a descriptor of any other kind releases them.
"""

import fcntl
import os
import sys
from contextlib import suppress

from kip30_backends.embedded.fork_gate import held_off

Inode = tuple[int, int]

_O_PATH = os.O_PATH if sys.platform == "linux" else 0

# Those of this process, whose descriptors a forked child closes. Changed only while forks are held
# off.
_held: set["Pin"] = set()


class Pin:
    """A file whose inode number is kept from other files until `close`.

    Attributes:
        inode: Device and inode of the file.
    """

    def __init__(self, file: str) -> None:
        """Keep the number of *file*. Where the system has no O_PATH, only take note of it.

        Raises:
            OSError: There is no such file.
        """
        self._descriptor = -1
        if not _O_PATH:
            self.inode = inode_of(os.stat(file))  # noqa: PTH116  as below
            return
        with held_off.lock:
            self._descriptor = os.open(file, _O_PATH | os.O_CLOEXEC)
            self.inode = inode_of(os.fstat(self._descriptor))
            _held.add(self)

    def close(self) -> None:
        """Let the number go. Idempotent; in a forked child it has gone already."""
        with held_off.lock:
            if self in _held:
                _held.discard(self)
                os.close(self._descriptor)

    def close_inherited(self) -> None:
        """In a forked child: close the descriptor.

        After a fork without hooks the child may have closed it already, and reused its number.

        Raises:
            OSError: It is closed.
        """
        if is_pin(self._descriptor) and inode_of(os.fstat(self._descriptor)) == self.inode:
            os.close(self._descriptor)


def is_pin(descriptor: int) -> bool:
    """Say whether *descriptor* was opened by O_PATH, so that no SQLite state belongs to it.

    Raises:
        OSError: It is closed.
    """
    return bool(_O_PATH and fcntl.fcntl(descriptor, fcntl.F_GETFL) & _O_PATH)


def close_inherited() -> None:
    """In a forked child: close the parent's pins."""
    for pin in _held:
        with suppress(OSError):
            pin.close_inherited()
    _held.clear()


def inode_of(found: os.stat_result) -> Inode:
    """Return device and inode of a file."""
    return found.st_dev, found.st_ino
