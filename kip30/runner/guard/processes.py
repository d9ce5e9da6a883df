"""Finding and ending all descendants of this process, whatever groups or sessions they are in."""

import os
import signal
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

_PROC = "/proc"
_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.05
_STAT_BYTES = 4096
_AFTER_NAME = b") "
_PARENT, _GROUP, _BORN = 1, 2, 19


class Process:
    """One process as `/proc` showed it."""

    __slots__ = ("born", "group", "parent", "pid")

    def __init__(self, pid: int, parent: int, group: int, born: int) -> None:
        """Keep its ids, and the clock tick in which it was *born*."""
        self.pid: int = pid
        self.parent: int = parent
        self.group: int = group
        self.born: int = born

    def send(self, number: int) -> None:
        """Send it a signal, unless it is gone or another user's; never to another process."""
        with suppress(ProcessLookupError, PermissionError), _held(self.pid) as descriptor:
            if (same := _read(self.pid)) and same.born == self.born:
                signal.pidfd_send_signal(descriptor, number)


def descendants(spare: Iterable[int] = ()) -> list[Process]:
    """Return the children of this process, their children and so on, zombies included.

    Args:
        spare: Ids of processes to leave out, with all that is below them.
    """
    by_parent: dict[int, list[Process]] = {}
    for process in _all():
        by_parent.setdefault(process.parent, []).append(process)
    left_out = set(spare)
    found: list[Process] = []
    parents = [os.getpid()]
    while parents:
        children = [p for p in by_parent.get(parents.pop(), ()) if p.pid not in left_out]
        found += children
        parents += [child.pid for child in children]
    return found


def signal_group(group: int, number: int) -> None:
    """Send every member of a process group a signal; none that takes it is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def pauses() -> Generator[float]:
    """Yield how long to wait between one round of killing and the next, in seconds."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def reap(pid: int = -1) -> tuple[int, int] | None:
    """Take the status of one dead child (or of the child *pid*), if there is one.

    Raises:
        ChildProcessError: There is no such child, dead or alive.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    return (ended, status) if ended else None


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
    try:
        file = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.read(file, _STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(file)
    fields = stat[stat.rindex(_AFTER_NAME) + len(_AFTER_NAME) :].split()
    return Process(pid, int(fields[_PARENT]), int(fields[_GROUP]), int(fields[_BORN]))
