"""Signals for a process and all its descendants, in all groups and sessions.

The servers of some stores start processes that call setsid, which no signal to a group reaches. A
parent is stopped before its children are looked for: it can neither start another one then, nor
reap one whose number could be given to a stranger.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

_PAUSE = 0.002
_SECONDS = 10.0
_STOPPED = "TtZX"
"""The states of threads that run no more: stopped, traced, and ended."""


def stop(root: int) -> None:
    """Stop *root* and its descendants, parents first, and wait until all have stopped.

    Raises:
        ProcessLookupError: There is no such process.
        TimeoutError: One of them does not stop.
    """
    os.kill(root, signal.SIGSTOP)
    running = [pid for pid, has_stopped in _frozen(root) if not has_stopped]
    if running:
        raise TimeoutError(f"of server {root} these processes do not stop: {running}")


def resume(root: int) -> None:
    """Continue *root* and its descendants."""
    for pid in [root, *_descendants(root)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill(root: int, kill_others: Callable[[], object]) -> None:
    """Kill *root* and its descendants with -9, and wait until they are gone or zombies.

    *kill_others* is called while *root* is stopped, so that its number is its own.
    """
    with ExitStack() as opened:
        descriptors = list[int]()
        for pid, _ in _frozen(root):
            with suppress(ProcessLookupError):
                descriptors.append(os.pidfd_open(pid))
                opened.callback(os.close, descriptors[-1])
        kill_others()
        for descriptor in descriptors:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor in descriptors:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()


def _frozen(root: int) -> list[tuple[int, bool]]:
    """Stop *root* and its descendants; return all, and whether each has stopped in time."""
    frozen, found = list[tuple[int, bool]](), [root]
    while found:
        pid = found.pop(0)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            frozen.append((pid, _has_stopped(pid)))
            found += _children(pid)
    return frozen


def _has_stopped(pid: int) -> bool:
    """Wait until no thread of a process that was sent SIGSTOP is running."""
    until = time.monotonic() + _SECONDS
    while any(state not in _STOPPED for state in _thread_states(pid)):
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE)
    return True


def _thread_states(pid: int) -> Iterator[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            # The name, in parentheses, may contain anything.
            yield (task / "stat").read_text().rpartition(")")[2].split()[0]


def _children(pid: int) -> list[int]:
    with suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def _descendants(root: int) -> Iterator[int]:
    for child in _children(root):
        yield child
        yield from _descendants(child)
