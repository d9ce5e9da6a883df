"""One term of a runner, from the order to start the command to the guard's report."""

import select

from kip30.runner.guard import messages
from kip30.runner.guard_handle import GuardHandle
from kip30.runner.interrupts import Interrupts, Response, response
from kip30.runner.protocols import Term

_LOOKS_PER_TIMEOUT = 20
_LONGEST_LOOK_SECONDS = 0.05


class Supervision:
    """Keeps a guard informed while it runs the command: of the lease, of signals, of the loss.

    It decides nothing by time; if it stands still, the guard does what is due.
    """

    def __init__(self, term: Term, guard: GuardHandle, interrupts: Interrupts) -> None:
        """Be about to run the command of *guard* for *term*."""
        self._term = term
        self._guard = guard
        self._interrupts = interrupts
        self._passed_on = 0
        self._is_ending = False
        self._is_killed = False
        self._poll = select.poll()
        self._poll.register(guard, select.POLLIN)
        self._poll.register(interrupts, select.POLLIN)
        look = min(term.timeout_seconds / _LOOKS_PER_TIMEOUT, _LONGEST_LOOK_SECONDS)
        self._look_milliseconds = max(1, int(look * 1000))

    def run(self, shared: int | None) -> tuple[str, int] | None:
        """Have the command started and wait for the guard's report; None if the guard died.

        Args:
            shared: A descriptor that keeps the lease, for the guard.
        """
        if self._is_lost():
            return messages.UNSTARTED, 0
        self._guard.start(self._term, shared)
        while not self._is_reported():
            self._renew()
            self._pass_on()
            if self._is_stuck():
                self._guard.destroy()
        return self._guard.report()

    def _is_reported(self) -> bool:
        ready = self._poll.poll(self._look_milliseconds)
        return any(descriptor == self._guard.fileno() for descriptor, _ in ready)

    def _renew(self) -> None:
        if self._is_lost():
            self._kill()
        else:
            self._guard.renew(self._term.deadline)

    def _is_lost(self) -> bool:
        return self._term.lost.is_set() or not self._term.is_valid()

    def _pass_on(self) -> None:
        self._interrupts.acknowledge()
        received = self._interrupts.received
        while self._passed_on < len(received):
            latest = received[self._passed_on]
            self._respond(response(received[: self._passed_on], latest), latest.number)
            self._passed_on += 1

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
