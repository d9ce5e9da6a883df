"""One run of a command, from the order to start it to the guard's report."""

import select
import signal
import threading
from collections.abc import Callable, Collection

from kip30.driver.clock import SystemClock
from kip30.runner.guard import deadlines, messages
from kip30.runner.guard_handle import CommandSpec, GuardHandle
from kip30.runner.interrupts import Interrupts, Response, response
from kip30.runner.job import LOST_STATUS, Ending, RunOutcome
from kip30.runner.orphans import OrphanReaper
from kip30.runner.protocols import UnderLease
from kip30.runner.terminal import Terminal
from kip30.runner.waiting import interrupted

_LOOKS_PER_TIMEOUT = 20
LONGEST_LOOK_SECONDS = 0.05
"""Seconds between reports of a long lease to a guard, if nothing wakes its runner sooner."""


class Supervision:
    """Informs a guard of the lease, of signals and of a loss while it runs the command.

    A lost term or share may soon be another's, so its command is killed at once. A share that is
    only wanted back, or a term that an operator has ended, stays held until the command has ended,
    so the command gets a signal and its grace.

    It decides nothing by time; if it is stalled, the guard does what is due.
    """

    def __init__(
        self,
        leased: UnderLease,
        guard: GuardHandle,
        interrupts: Interrupts,
        *,
        wanted_back: threading.Event | None = None,
        terminal: Terminal | None = None,
    ) -> None:
        """Prepare to run the command of *guard* for *leased*, until that is *wanted_back*.

        With *terminal*, the command may use it.
        """
        self._terminal = terminal
        self._leased = leased
        self._guard = guard
        self._interrupts = interrupts
        # Never set if the command may run as long as the lease lasts.
        self._wanted_back = wanted_back or threading.Event()
        self._passed_on = 0
        # Signals caught before this command are not for it.
        self._forwarded = interrupts.forwarded.copy()
        self._is_ending = False
        self._is_killed = False

    def run(
        self,
        command: CommandSpec,
        shared: int | None,
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> tuple[str, int] | None:
        """Let the guard start the command and wait for the guard's report; None if the guard died.

        Args:
            command: What to start.
            shared: A descriptor that keeps the lease, for the guard.
            meanwhile: Called again and again once the command runs. It must not wait.

        Raises:
            OSError: There is no memory or no descriptor left. Nothing was started.
        """
        if not self.start(command, shared):
            return messages.UNSTARTED, 0
        poll = select.poll()
        poll.register(self._guard, select.POLLIN)
        poll.register(self._interrupts, select.POLLIN)
        look_milliseconds = max(1, int(look_seconds(self._leased) * 1000))
        while not self._is_reported(poll.poll(look_milliseconds)):
            self._interrupts.acknowledge()
            self.look()
            if self._guard.command_pid:
                meanwhile()
        return self._guard.report()

    def start(self, command: CommandSpec, shared: int | None) -> bool:
        """Let the guard start the command, unless its term or share has ended already.

        From then on `look` is due every `look_seconds` and after each signal, until the guard's
        descriptor is readable. Arguments and errors are those of `run`.
        """
        if self._is_lost() or self._wanted_back.is_set():
            return False
        uses_terminal = False
        if self._terminal is not None:
            self._terminal.lend()
            uses_terminal = self._terminal.is_lent
        self._guard.start(command, self._leased, shared, uses_terminal=uses_terminal)
        return True

    def look(self) -> None:
        """Inform the guard of what has changed, and kill a guard that does not respond in time."""
        self._renew()
        self._pass_on()
        self._forward()
        if self._terminal is not None:
            self._terminal.look(self._guard)
        if self._wanted_back.is_set():
            self.end()
        if self._is_stuck():
            self._guard.destroy()

    def end(self) -> None:
        """Let the command end within its grace, unless it is ending. Idempotent."""
        if not self._is_ending:
            self._guard.stop(signal.SIGTERM)
            self._is_ending = True

    def _is_reported(self, ready: list[tuple[int, int]]) -> bool:
        return any(descriptor == self._guard.fileno() for descriptor, _ in ready)

    def _renew(self) -> None:
        if self._is_lost():
            self._kill()
        else:
            self._guard.renew(self._leased.deadline)

    def _is_lost(self) -> bool:
        return self._leased.lost.is_set() or not self._leased.is_valid()

    def _pass_on(self) -> None:
        received = self._interrupts.received
        while self._passed_on < len(received):
            latest = received[self._passed_on]
            self._respond(response(received[: self._passed_on], latest), latest.number)
            self._passed_on += 1

    def _forward(self) -> None:
        # The command may have begun before the guard says so: signals caught then are kept.
        if not self._guard.command_pid:
            return
        caught = self._interrupts.forwarded.copy()
        for number in caught - self._forwarded:
            self._guard.forward(number)
        self._forwarded = caught

    def _respond(self, due: Response, number: int) -> None:
        if due is Response.PASS_ON:
            self._guard.stop(number)
            self._is_ending = True
        elif due is Response.KILL:
            self._kill()

    def _kill(self) -> None:
        if not self._is_killed:
            self._guard.kill()
        self._is_killed = self._is_ending = True

    def _is_stuck(self) -> bool:
        waits = self._is_ending or not self._guard.command_pid
        return waits and self._guard.is_standing_still()


def look_seconds(leased: UnderLease) -> float:
    """Return how often a guard must be informed of *leased*, in seconds."""
    return min(leased.timeout_seconds / _LOOKS_PER_TIMEOUT, LONGEST_LOOK_SECONDS)


def runs_out(leased: UnderLease) -> bool:
    """Return whether a guard ends a command under the lease unless that is renewed."""
    left = leased.deadline - SystemClock().now()
    return left < leased.timeout_seconds / deadlines.TERM_PART


def end_orphans_of(
    guard: GuardHandle, orphans: OrphanReaper, spare: Collection[int] = ()
) -> tuple[str, int]:
    """End the processes of *guard*, which was killed, and return what it would have reported.

    Args:
        guard: The killed one.
        orphans: The reaper that has adopted its processes.
        spare: The process ids of other guards, which are left alone.
    """
    command = guard.command_pid
    guard.close()
    status = orphans.clear(spare).get(command)
    return (messages.UNSTARTED, 0) if status is None else (messages.STOPPED, status)


def run_outcome(report: tuple[str, int], interrupts: Interrupts, otherwise: Ending) -> RunOutcome:
    """Return the outcome of a run by the *report* of its guard.

    Args:
        report: A word of `messages`, and its number.
        interrupts: Signals, one of which may have ended the command.
        otherwise: Why the command was ended if not by a signal.
    """
    word, number = report
    if word == messages.ENDED:
        return RunOutcome.of_command(Ending.COMMAND_ENDED, number)
    if word == messages.FAILED:
        return RunOutcome.not_executed(number)
    if not interrupts.received:
        return RunOutcome(otherwise, LOST_STATUS)
    if word == messages.UNSTARTED:
        return interrupted(interrupts)
    return RunOutcome.of_command(Ending.INTERRUPTED, number)
