"""The shutdown of a command and its descendants: a signal, the grace, then SIGKILL.

    running -- a signal, the end of the lease, the end of the first process --> grace
    grace -- no process is left --> over
    running, grace -- the end of the grace, the end of the lease, an order --> killing

When the shutdown begins, every process gets the signal, once. After the first process has ended,
SIGTERM goes to each process that was left behind, unless it already had a signal that it does not
ignore. A process that is forked during the shutdown is left alone while its parent lives: it may
be what the parent cleans up with.
"""

import signal

from . import deadlines, messages, processes
from .command import Command
from .processes import Identity
from .shared_memory import SharedMemory, now

_SCAN_PERIOD = 50_000_000


class Shutdown:
    """Decides when a command and its descendants get which signal."""

    def __init__(self, command: Command, memory: SharedMemory) -> None:
        """Leave *command* alone until there is a reason to end it."""
        self._command = command
        self._memory = memory
        # The guard's final report. Fixed by the event that begins the shutdown.
        self._outcome = messages.ENDED
        # When the grace ends, in nanoseconds since boot; None before the shutdown begins.
        self._grace_ends_at: int | None = None
        # The processes that got each signal and do not ignore it.
        self._signalled: dict[int, set[Identity]] = {}
        # When to look for processes that were left behind, in nanoseconds since boot.
        self._scan_at = 0

    @property
    def outcome(self) -> str:
        """The word of `messages` for how the command ended."""
        return self._outcome

    def has_begun(self) -> bool:
        """Return whether the command has ended, or was asked to end."""
        return self._grace_ends_at is not None

    def kill_at(self) -> int:
        """Return when every process that is left must be killed, in nanoseconds since boot."""
        end_of_lease = deadlines.kill_at(self._memory)
        if self._grace_ends_at is None:
            return end_of_lease
        return min(end_of_lease, self._grace_ends_at)

    def ask(self, number: int, outcome: str) -> None:
        """Send a signal to the command and all its descendants that did not get it yet.

        The first call begins the shutdown and the grace; a later one does not extend the grace.
        """
        is_first = self._begin(outcome)
        had_it = self._signalled.setdefault(number, set())
        receivers = [p for p in processes.descendants() if p.identity not in had_it]
        had_it.update(p.identity for p in receivers if not p.ignores(number))
        if is_first:
            self._command.signal_first(number, receivers)
        else:
            processes.signal_each(number, receivers)

    def force(self, outcome: str) -> None:
        """End the grace at once."""
        self._begin(outcome)
        self._grace_ends_at = 0

    def advance(self) -> bool:
        """Take the steps that are due; return whether all processes left must be killed now.

        To be called after children were reaped.
        """
        moment = now()
        if self._command.status is not None:
            self._begin(messages.ENDED)
            self._ask_left_behind(moment)
        if moment >= deadlines.term_at(self._memory) and not self.has_begun():
            self.ask(signal.SIGTERM, messages.LAPSED)
        return moment >= self.kill_at()

    def _begin(self, outcome: str) -> bool:
        if self.has_begun():
            return False
        self._outcome = outcome
        self._grace_ends_at = now() + self._memory.grace
        # The runner may be killed in the grace; its command keeps what is left of it.
        self._command.outlive_runner()
        return True

    def _ask_left_behind(self, moment: int) -> None:
        # Hundreds of processes may end at once, and each end leads here.
        if moment < self._scan_at:
            return
        self._scan_at = moment + _SCAN_PERIOD
        signalled = frozenset[Identity]().union(*self._signalled.values())
        receivers = processes.descendants(spare=signalled)
        processes.signal_each(signal.SIGTERM, receivers)
        had_it = self._signalled.setdefault(signal.SIGTERM, set())
        had_it.update(process.identity for process in receivers)
