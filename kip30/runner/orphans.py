"""What becomes of a command's processes when their guard is gone: they fall to the runner."""

import os
import signal
import time
from typing import Self

from kip30.runner.guard import kernel, processes
from kip30.runner.interrupts import Handler


class OrphanReaper:
    """Makes this process inherit orphaned descendants, in a with-block.

    Children it had before are spared. Those it gets later are taken for a command's.
    """

    def __init__(self) -> None:
        """Adopt nothing yet."""
        self._spared: frozenset[processes.Identity] = frozenset()
        self._was_subreaper = False
        self._handler: Handler = signal.SIG_DFL

    def __enter__(self) -> Self:
        """Begin to adopt."""
        me = os.getpid()
        self._spared = frozenset(p.identity for p in processes.descendants() if p.parent == me)
        self._was_subreaper = kernel.is_subreaper()
        kernel.set_subreaper(on=True)
        # Ignored, by inheritance, it would have the kernel throw statuses away, the guard's too.
        self._handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *_error: object) -> None:
        """Adopt no more."""
        signal.signal(signal.SIGCHLD, self._handler)
        kernel.set_subreaper(on=self._was_subreaper)

    def clear(self) -> dict[int, int]:
        """Kill every adopted process, with all its descendants, and wait until all are gone.

        Returns:
            The wait statuses of the reaped, by process id.
        """
        statuses: dict[int, int] = {}
        pauses = processes.pauses()
        while left := self._descendants():
            for process in left:
                process.send(signal.SIGKILL)
            statuses.update(_reap(left))
            time.sleep(next(pauses))
        return statuses

    def _descendants(self) -> list[processes.Process]:
        return processes.descendants(self._spared) if _has_children() else []


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _reap(left: list[processes.Process]) -> dict[int, int]:
    me = os.getpid()
    ended = [processes.reap(p.pid) for p in left if p.parent == me]
    return dict(each for each in ended if each)
