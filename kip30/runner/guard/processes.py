"""Finding and ending all descendants of this process, in any group or session."""

import os
import signal
from collections.abc import Container, Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType

_PROC = "/proc"
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.05
_FILE_BYTES = 8192
_AFTER_NAME = b") "
_IGNORED = b"SigIgn"
_PARENT, _GROUP, _BORN = 1, 2, 19


Identity = tuple[int, int]
"""A process id, and the clock tick in which the process began."""


class Process:
    """One process as `/proc` showed it."""

    __slots__ = ("born", "group", "parent", "pid")

    def __init__(self, pid: int, parent: int, group: int, born: int) -> None:
        """Keep its ids, and the clock tick in which it was *born*."""
        self.pid: int = pid
        self.parent: int = parent
        self.group: int = group
        self.born: int = born

    @property
    def identity(self) -> Identity:
        """Identifies the process, even if its number is reused."""
        return self.pid, self.born

    def ignores(self, number: int) -> bool:
        """Return whether it ignores a signal; false if it is gone."""
        mask = int(_status(self.pid).get(_IGNORED, b"0"), 16)
        return bool(mask >> (number - 1) & 1)

    def send(self, number: int) -> None:
        """Send it a signal, unless it is gone or another user's; never to another process."""
        with suppress(ProcessLookupError, PermissionError), _held(self.pid) as descriptor:
            if (same := _read(self.pid)) and same.born == self.born:
                signal.pidfd_send_signal(descriptor, number)


def descendants(spare: Container[Identity] = ()) -> list[Process]:
    """Return the children of this process, their children and so on, zombies included.

    Args:
        spare: Processes to leave out, with all that is below them.
    """
    by_parent: dict[int, list[Process]] = {}
    for process in _all():
        by_parent.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [os.getpid()]
    while parents:
        children = [p for p in by_parent.get(parents.pop(), ()) if p.identity not in spare]
        found += children
        parents += [child.pid for child in children]
    return found


def members(group: int) -> list[Process]:
    """Return the processes of a process group, zombies included."""
    return [process for process in _all() if process.group == group]


def signal_each(number: int, receivers: Iterable[Process]) -> None:
    """Send each process a signal, and resume it if it is stopped, so that it takes notice."""
    for process in receivers:
        process.send(number)
        process.send(signal.SIGCONT)


def signal_group(group: int, number: int) -> None:
    """Send every member of a process group a signal; an empty group is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def pauses() -> Generator[float]:
    """Yield how long to wait between one round of killing and the next, in seconds."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def reap(pid: int = -1, *, stopped: bool = False) -> tuple[int, int] | None:
    """Take the status of one dead child (or of the child *pid*), if there is one.

    Args:
        pid: The child; -1 is any.
        stopped: Take that of a child that has stopped as well, once for each stop.

    Raises:
        ChildProcessError: There is no such child, dead or alive.
    """
    ended, status = os.waitpid(pid, os.WNOHANG | (os.WUNTRACED if stopped else 0))
    return (ended, status) if ended else None


class ChildEnds:
    """Readable once a child of this process has ended. One per process, main thread only."""

    def __init__(self) -> None:
        """Catch SIGCHLD from now on."""
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(writing, False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._reading

    def clear(self) -> None:
        """Make it unreadable until the next child ends."""
        with suppress(BlockingIOError):
            while os.read(self._reading, _FILE_BYTES):
                pass


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a signal that has no handler does not wake."""


@contextmanager
def _held(pid: int) -> Generator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _all() -> Generator[Process]:
    with os.scandir(_PROC) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        if name.isdigit() and (process := _read(int(name))):
            yield process


def _read(pid: int) -> Process | None:
    stat = _content(pid, "stat")
    if not stat:
        return None
    fields = stat[stat.rindex(_AFTER_NAME) + len(_AFTER_NAME) :].split()
    return Process(pid, int(fields[_PARENT]), int(fields[_GROUP]), int(fields[_BORN]))


def _status(pid: int) -> dict[bytes, bytes]:
    lines = _content(pid, "status").splitlines()
    return {name: value for name, _colon, value in (line.partition(b":") for line in lines)}


def _content(pid: int, name: str) -> bytes:
    """Return what a file of the process holds; nothing if the process is gone, or hidden.

    Raises:
        OSError: The file cannot be opened for another reason, such as a lack of descriptors.
    """
    try:
        file = os.open(f"{_PROC}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
    try:
        return os.read(file, _FILE_BYTES)
    except ProcessLookupError:
        return b""
    finally:
        os.close(file)
