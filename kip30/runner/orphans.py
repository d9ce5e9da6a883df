"""Ends the processes of a command whose guard has died: the runner inherits them."""

import os
import signal
import time
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Self

from kip30.runner.guard import kernel, processes
from kip30.runner.interrupts import Handler
from kip30.runner.job import is_shortage

_FIRST_PROCESS = 1
_REAP_SECONDS = 2.0


class OrphanReaper:
    """Makes this process inherit orphaned descendants, in a with-block.

    Children it had before are spared. Those it gets later are taken for a command's, where a guard
    was killed. As the first process of a container it also gets the orphans of processes that were
    started beside the command, as by ``kubectl exec``; see `reap_foreign`.
    """

    def __init__(self) -> None:
        """Adopt nothing yet."""
        self._spared: frozenset[processes.Identity] = frozenset()
        self._was_subreaper = False
        self._handler: Handler = signal.SIG_DFL
        # When `reap_foreign` looks next, by time.monotonic.
        self._look_at = 0.0

    def __enter__(self) -> Self:
        """Begin to adopt."""
        me = os.getpid()
        self._spared = frozenset(p.identity for p in processes.descendants() if p.parent == me)
        self._was_subreaper = kernel.is_subreaper()
        kernel.set_subreaper(on=True)
        # If it is inherited as ignored, the kernel discards statuses, including the guard's.
        self._handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop adopting processes."""
        signal.signal(signal.SIGCHLD, self._handler)
        kernel.set_subreaper(on=self._was_subreaper)

    def clear(self, guards: Collection[int] = ()) -> dict[int, int]:
        """Kill every adopted process, with all its descendants, and wait until all are gone.

        While the system has no descriptor or memory to look for them, it is not known whether all
        are, so this waits for that, too.

        Args:
            guards: Guards to spare, as those of `sweep`.

        Returns:
            The wait statuses of the reaped, by process id.
        """
        statuses: dict[int, int] = {}
        pauses = processes.pauses()
        while True:
            try:
                left = self._left(guards)
                if not left:
                    return statuses
                statuses.update(_kill(left))
            except OSError as error:
                _raise_unless_shortage(error)
            time.sleep(next(pauses))

    def sweep(self, guards: Collection[int]) -> bool:
        """Kill every adopted process, with all its descendants, except those of live guards.

        It does not wait: call it again until it returns true.

        Args:
            guards: The process ids of guards that are not reaped yet, which keeps the ids theirs.
                They are spared with all that is below them.

        Returns:
            Whether none was left to be killed or reaped; false if the system has no descriptor or
            memory to look for them.
        """
        try:
            left = self._left(guards)
            _kill(left)
        except OSError as error:
            _raise_unless_shortage(error)
            return False
        return not left

    def reap_foreign(self, own: Collection[int]) -> None:
        """As process 1, reap the children that have ended, every few seconds at most.

        No other process can, and each takes a process id until then. Their number is looked at
        alone: those that live are spared.

        Args:
            own: The process ids of guards that are not reaped yet, and of their commands, whose
                statuses others need.
        """
        if os.getpid() != _FIRST_PROCESS or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _REAP_SECONDS
        with suppress(OSError):  # no descriptor, or a child reaped meanwhile: the next look follows
            if not _has_dead_child():
                return
            me = os.getpid()
            for process in self._descendants():
                if process.parent == me and process.pid not in own:
                    processes.reap(process.pid)

    def _left(self, guards: Collection[int]) -> list[processes.Process]:
        found = self._descendants()
        spared = {process.identity for process in found if process.pid in guards}
        return self._descendants(spared) if spared else found

    def _descendants(
        self, also_spared: AbstractSet[processes.Identity] = frozenset()
    ) -> list[processes.Process]:
        return processes.descendants(self._spared | also_spared) if _has_children() else []


def _raise_unless_shortage(error: OSError) -> None:
    if not is_shortage(error.errno):
        raise error


def _kill(left: list[processes.Process]) -> dict[int, int]:
    """Kill processes, and return the wait statuses of those that are dead children."""
    for process in left:
        process.send(signal.SIGKILL)
    me = os.getpid()
    ended = [processes.reap(p.pid) for p in left if p.parent == me]
    return dict(each for each in ended if each)


def _has_dead_child() -> bool:
    return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _has_children() -> bool:
    try:
        _has_dead_child()
    except ChildProcessError:
        return False
    return True
