"""Forks: a child inherits no SQLite state of an open store.

SQLite keeps for each process which locks it holds on a file, with mutexes and a mapping of the
shared index. A forked child inherits that record but not the locks, so another process may delete
the log while the child writes to it. Therefore the process closes all connections before it forks,
and opens none until the fork is done. Threads of the parent connect again with their next
statement. A child for which that failed is *unclean*, and so are its own children: they must not
open any embedded store.

A `PinnedInode` recognises a file by its inode number. The system gives that number to another file
once the file is removed and no descriptor of it is left, so it keeps one, opened by O_PATH (Linux):
SQLite has its record locks on the same file, and closing a descriptor of any other kind releases
them.
"""

import fcntl
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from kip30.errors import LifecycleError
from kip30_backends.embedded import liveness_locks
from kip30_backends.embedded.errors import raised_by_program
from kip30_backends.embedded.liveness_locks import held_off

Inode = tuple[int, int]

_PAUSE_SECONDS = 0.01
_O_PATH = os.O_PATH if sys.platform == "linux" else 0

# The pins of this process, whose descriptors a forked child closes. Changed only while forks are
# held off.
_held: set["PinnedInode"] = set()


class PinnedInode:
    """A file whose inode number is kept from other files until `close`.

    Attributes:
        inode: Device and inode of the file.
    """

    def __init__(self, file: str) -> None:
        """Keep the number of *file*. Where the system has no O_PATH, only record it.

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
        """Release the number. Idempotent; in a forked child it is already released."""
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
        if self._is_ours() and inode_of(os.fstat(self._descriptor)) == self.inode:
            os.close(self._descriptor)

    def _is_ours(self) -> bool:
        return is_pin(self._descriptor)


class DirectoryLock(PinnedInode):
    """A shared BSD lock on a directory, which keeps systemd-tmpfiles from ageing what is in it.

    Attributes:
        is_alone: Whether no other process, nor another lock of this one, had the lock, which is
            then exclusive until `share`.
    """

    def __init__(self, directory: Path) -> None:
        """Try to lock *directory*. A file system without such locks is no error.

        Raises:
            OSError: It cannot be opened.
        """
        with held_off.lock:
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.inode = inode_of(os.fstat(self._descriptor))
            _held.add(self)
        self._works = True
        self.is_alone = self._try(fcntl.LOCK_EX)

    def is_alone_now(self) -> bool:
        """Return whether no other process holds the lock; if so, it is exclusive until `share`."""
        self.is_alone = self.is_alone or self._try(fcntl.LOCK_EX)
        return self.is_alone

    def share(self, seconds: float) -> None:
        """Let others have the lock too; do without it if another program keeps it for *seconds*."""
        until = time.monotonic() + seconds
        while not self._try(fcntl.LOCK_SH) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)

    @override
    def _is_ours(self) -> bool:
        return True

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if raised_by_program(error):
                raise
            self._works = False
            return kind == fcntl.LOCK_SH  # there is nothing to wait for
        return True


def is_pin(descriptor: int) -> bool:
    """Return whether *descriptor* was opened by O_PATH, so that no SQLite state belongs to it.

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


_LONGEST_SECONDS = 5.0
"""Seconds that a fork waits for transactions; then it proceeds, and the child is unclean."""


class Lockable(Protocol):
    """A lock that is held from before a fork until after it."""

    def acquire(self, *, timeout: float) -> bool:
        """Acquire it; false after *timeout* seconds."""
        ...

    def release(self) -> None:
        """Release it."""
        ...


class Pause:
    """One fork of this process: the locks that keep threads from SQLite until it is done."""

    def __init__(self) -> None:
        """Begin to wait; every lock has the same deadline."""
        self.complete = False
        self._until = time.monotonic() + _LONGEST_SECONDS
        # Above an end mark. The locks are of C code. One call of C code both acquires a lock and
        # records it, or undoes both: a signal handler that raises cannot come in between.
        self._held: list[Lockable | None] = [None]

    def hold(self, lock: Lockable) -> bool:
        """Acquire *lock* until `release`; false if its holder did not release it in time."""
        acquire = methodcaller("acquire", timeout=max(0.0, self._until - time.monotonic()))
        before = len(self._held)
        self._held.extend(filter(acquire, [lock]))
        return len(self._held) > before

    def release(self) -> None:
        """Release all locks. Idempotent."""
        if self._held:
            deque(map(methodcaller("release"), iter(self._held.pop, None)), maxlen=0)


class Forkable(Protocol):
    """An open object that a forked child inherits and must not use."""

    def abandon(self) -> None:
        """In the child: drop what is inherited without an effect on the parent."""
        ...


class PausableConnections(Forkable, Protocol):
    """The connections of this process to one file."""

    inode: Inode

    def pause(self, pause: Pause) -> bool:
        """Close all connections and open none until *pause* ends; false if one is still in use."""
        ...

    def is_in_use(self) -> bool:
        """Return whether any connection is open, or about to be."""
        ...

    def companions_in_use(self) -> tuple[Inode | None, Inode | None] | None:
        """Return device and inode of the log and its index, if a connection has them open."""
        ...


class _Process:
    """This process, as the last fork left it.

    Attributes:
        unclean: Whether SQLite state of a parent was inherited. Never reset.
        pid: Differs from the real one after a fork that ran no hooks.
        lock: Held during a fork, and to add to `stores` or `engines`.
        pauses: Of the forks of one thread; more than one if a signal handler forks inside a fork.
    """

    def __init__(self) -> None:
        self.unclean = False
        self.clear()

    def clear(self) -> None:
        """Start with nothing open."""
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.stores: set[PausableConnections] = set()
        self.engines: weakref.WeakSet[Forkable] = weakref.WeakSet()
        self.pauses = _Pauses()


class _Pauses(threading.local):
    def __init__(self) -> None:
        self.stack: list[Pause] = []


_process = _Process()


def add_store(store: PausableConnections) -> None:
    """Make every fork pause *store*, until `remove_store`. Waits for a fork under way."""
    with _process.lock:
        _process.stores.add(store)


def remove_store(store: PausableConnections) -> None:
    """Undo `add_store`: *store* no longer has a connection."""
    _process.stores.discard(store)


def open_stores() -> list[PausableConnections]:
    """Return what `add_store` was called with and `remove_store` was not."""
    return list(_process.stores)


def register(resources: Forkable) -> None:
    """Make forked children abandon *resources*, for as long as it exists."""
    with _process.lock:
        _process.engines.add(resources)


def refuse_if_unclean() -> None:
    """Raise if this process may not open an embedded store. Does no I/O on its files.

    Raises:
        LifecycleError: It inherited SQLite state that was in use when its parent forked.
    """
    if os.getpid() != _process.pid:
        # Forked by code that runs no hooks. It is too late to close what the engines have open: the
        # child may have reused the descriptors.
        _process.engines.clear()
        _enter_child(None)
    if _process.unclean:
        raise LifecycleError(
            "this process was forked while an embedded store was in use, and inherited SQLite state"
            " that is not safe to use: start locators after the fork only, or start the process by"
            " exec (multiprocessing: spawn or forkserver)"
        )


def _before() -> None:
    pause = Pause()
    stack = _process.pauses.stack
    stack.append(pause)
    # The inner one of two forks in one thread finds connections half closed and locks half taken.
    pause.complete = len(stack) == 1 and _pause_all(pause)


def _pause_all(pause: Pause) -> bool:
    """Wait for all threads to leave SQLite; a thread may wait for `held_off` in a transaction."""
    serialised = pause.hold(_process.lock)
    stores = [store.pause(pause) for store in list(_process.stores)]
    held = not held_off.is_inside() and pause.hold(held_off.lock)
    return held and serialised and all(stores)


def _in_parent() -> None:
    stack = _process.pauses.stack
    if stack:
        stack[-1].release()
        stack.pop()


def _in_child() -> None:
    stack = _process.pauses.stack
    _enter_child(stack.pop() if stack else None)


def _enter_child(pause: Pause | None) -> None:
    """Drop what belongs to the parent; *pause* is None if the fork did not wait."""
    _process.unclean = _process.unclean or not _is_clean(pause)
    inherited: list[Forkable] = [*_process.engines, *_process.stores]
    _process.clear()
    held_off.renew()
    liveness_locks.close_inherited()
    close_inherited()
    for each in inherited:
        each.abandon()


def _is_clean(pause: Pause | None) -> bool:
    stores = _process.stores
    if pause is None:
        return held_off.is_free() and not any(store.is_in_use() for store in stores)
    return pause.complete and not _is_open({store.inode for store in stores})


def _is_open(files: set[Inode]) -> bool:
    """Return whether one of *files* is open outside this module: by its user, or leaked."""
    return bool(files) and not files.isdisjoint(_open_files())


def _open_files() -> Iterable[Inode]:
    with suppress(OSError):  # the system does not list them
        for entry in list(Path("/dev/fd").iterdir()):
            with suppress(OSError):  # the descriptor of the listing itself
                if not is_pin(int(entry.name)):
                    yield inode_of(os.fstat(int(entry.name)))


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
