"""File locks that the kernel drops when their holder dies: the proof that a session lives.

Two kinds exclude each other, so processes may differ in which they use. An open-file-description
lock lives until the last copy of its descriptor is closed. A record lock belongs to the process and
is lost as soon as the process closes *any* descriptor of the file, by whichever path it was opened;
so a file that this process has locked is never opened again.

A child that is forked while another thread opens a connection or a lock file inherits a descriptor,
a mutex or a lock that nothing in the child knows of. Such work is done inside
``with held_off.lock:``; the hooks in `fork_safety` wait for its end before the process forks.
"""

import fcntl
import os
import struct
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from kip30.errors import ConfigError
from kip30_backends.embedded.errors import raised_by_program


class ForkDelay:
    """Delays forks of this process.

    Attributes:
        lock: Held inside a block. Re-entrant: a finaliser may enter it again. Nothing inside may
            wait for another thread or another process, because forks wait for it. A lock of C code
            and not a context manager in Python: a signal handler can raise as soon as a Python
            function has begun or a call has returned, and would leave the lock acquired.
    """

    def __init__(self) -> None:
        """Start without delaying."""
        self.lock = threading.RLock()

    def is_inside(self) -> bool:
        """Return whether this thread is inside a block."""
        try:
            threading.Condition(self.lock).notify()
        except RuntimeError:
            return False
        return True

    def is_free(self) -> bool:
        """Return whether no thread is inside a block, without waiting."""
        if self.is_inside() or not self.lock.acquire(blocking=False):
            return False
        self.lock.release()
        return True

    def renew(self) -> None:
        """In a forked child: forget the threads of the parent."""
        self.lock = threading.RLock()


held_off = ForkDelay()


Inode = tuple[int, int]

# The locks of this process, by path: descriptors, which a forked child closes, and inodes.
# Changed only while forks are held off.
_held: dict[str, tuple[int, Inode]] = {}
# The inodes of record locks, because one file may have several paths.
_record_locked: set[Inode] = set()

_FLOCK = "hhqqi4x"


class Locks(ABC):
    """One kind of file lock."""

    name: str
    shareable: bool

    def hold(self, file: str) -> int:
        """Make *file*, lock it, and return the descriptor that holds the lock."""
        try:
            with held_off.lock:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                _held[file] = descriptor, _inode(os.fstat(descriptor))
            os.fchmod(descriptor, 0o600)
            self._lock(descriptor)
            os.write(descriptor, mark_of(os.fstat(descriptor)))
        except BaseException:
            if file in _held:
                self.drop(file, _held[file][0])
            raise
        return descriptor

    def drop(self, file: str, descriptor: int, *, keep: bool = False) -> None:
        """Release the lock of *file*, also in processes that share it; remove it unless *keep*."""
        if not keep:
            with suppress(OSError):  # then another process removes it
                Path(file).unlink()
        with held_off.lock:
            self._unlock(descriptor)
            os.close(descriptor)
            _held.pop(file, None)

    def is_held(self, file: str) -> bool | None:
        """Return whether a living process holds the lock of *file*; if it cannot be read, yes.

        Returns:
            None if that is unknown: the file is missing, or is not the one that was locked.
        """
        if file in _held:
            return True
        try:
            if _record_locked and _inode(Path(file).lstat()) in _record_locked:
                return True
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            if raised_by_program(error):
                raise
            return None if isinstance(error, FileNotFoundError) else True
        try:
            if self._is_locked(descriptor):
                return True
            mark = mark_of(os.fstat(descriptor))
            is_original = os.pread(descriptor, len(mark) + 1, 0) == mark
            return False if is_original else None
        finally:
            os.close(descriptor)

    @abstractmethod
    def _lock(self, descriptor: int) -> None: ...

    @abstractmethod
    def _unlock(self, descriptor: int) -> None: ...

    @abstractmethod
    def _is_locked(self, descriptor: int) -> bool: ...


class OfdLocks(Locks):
    """Open-file-description locks (Linux)."""

    name = "ofd"
    shareable = True

    @override
    def _lock(self, descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _flock(fcntl.F_WRLCK))

    @override
    def _unlock(self, descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))

    @override
    def _is_locked(self, descriptor: int) -> bool:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _PROBE)
        kind: int = struct.unpack(_FLOCK, answer)[0]
        return kind != fcntl.F_UNLCK


class RecordLocks(Locks):
    """Record locks, which every POSIX system has."""

    name = "record"
    shareable = False

    @override
    def _lock(self, descriptor: int) -> None:
        _record_locked.add(_inode(os.fstat(descriptor)))
        fcntl.lockf(descriptor, fcntl.LOCK_EX)

    @override
    def _unlock(self, descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
        _record_locked.discard(_inode(os.fstat(descriptor)))

    @override
    def _is_locked(self, descriptor: int) -> bool:
        # Probing by taking a shared lock needs no struct whose layout differs between systems.
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def choose(liveness: str) -> Locks:
    """Return the locks that the setting *liveness* means on this system.

    Raises:
        ConfigError: It requires a feature that the system lacks.
    """
    has_ofd = liveness != "record" and _has_ofd_locks()
    if liveness == "ofd" and not has_ofd:
        raise ConfigError("plugin.embedded.liveness = ofd: not on this system; use record or auto")
    return OfdLocks() if has_ofd else RecordLocks()


def _has_ofd_locks() -> bool:
    """Return whether the system has them; the kernels of some sandboxes refuse them."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return False
    try:
        with Path(os.devnull).open("rb") as file:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))
    except OSError:
        return False
    return True


def close_inherited() -> None:
    """In a forked child: close the descriptors of the parent's locks.

    An open-file-description lock would outlive the parent as long as the child keeps one. Closing
    a descriptor here takes no lock from the parent: neither kind is lost by that. After a fork
    without hooks the child may have closed it already, and reused its number.
    """
    for descriptor, inode in _held.values():
        with suppress(OSError):
            if _inode(os.fstat(descriptor)) == inode:
                os.close(descriptor)
    _held.clear()
    _record_locked.clear()


def _inode(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino


def mark_of(status: os.stat_result) -> bytes:
    """Return a mark that distinguishes the file with *status* from copies; always of one length."""
    return b"%20d\n" % status.st_ino


def _flock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


_PROBE = _flock(fcntl.F_RDLCK)
