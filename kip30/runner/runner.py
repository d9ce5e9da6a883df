"""The runner: wait to lead, have the command run under a guard, give leadership up after it."""

import math
import sys
import time
from collections.abc import Callable

from kip30.errors import OutcomeUnknownError, UnavailableError, UnsupportedError
from kip30.runner import exit_status
from kip30.runner.guard import messages
from kip30.runner.guard_handle import GuardHandle
from kip30.runner.interrupts import Interrupts
from kip30.runner.job import LOST_STATUS, WAITED_STATUS, Ending, Job, RunOutcome
from kip30.runner.orphans import OrphanReaper
from kip30.runner.protocols import Contest, Term
from kip30.runner.supervision import Supervision

Say = Callable[[str], None]
"""Takes one line of progress."""

_TURN_SECONDS = 0.1


def run(contest: Contest, job: Job, *, say: Say = lambda _line: None) -> RunOutcome:
    """Run a command whenever, and only while, *contest* is won.

    No two commands of one service overlap, whichever process is killed or stopped: see the package
    for how, and for what is not promised. Linux only, and main thread only: SIGTERM, SIGINT, SIGHUP
    and SIGQUIT are caught meanwhile and passed on to the command and its descendants; a second
    request to end kills them (see `kip30.runner.interrupts.response`). The process should start no
    children of its own while this runs, for it adopts the command's orphans and cannot tell them
    apart.

    Args:
        contest: The candidate. It is resigned at the end, but stays the caller's.
        job: The command and what belongs to it.
        say: Told of the progress, a line at a time.

    Raises:
        UnsupportedError: This is not Linux. Nothing was done.
        Kip30Error: The contest failed for good. The command is not running any more.
        OSError: A guard cannot be started, or cannot work. The command is not running.
    """
    if sys.platform != "linux":
        raise UnsupportedError("a guard needs Linux")
    if refusal := exit_status.refusal(job.command[0]):
        return RunOutcome.not_executed(refusal)
    with Interrupts() as interrupts, OrphanReaper() as adoption:
        return _Runner(contest, job, say, interrupts, adoption).run()


class _Runner:
    def __init__(
        self, contest: Contest, job: Job, say: Say, interrupts: Interrupts, adoption: OrphanReaper
    ) -> None:
        self._contest = contest
        self._job = job
        self._say = say
        self._interrupts = interrupts
        self._adoption = adoption
        self._complaint = ""

    def run(self) -> RunOutcome:
        while True:
            outcome = self._turn()
            if outcome and (outcome.ending != Ending.LOST or self._job.once):
                return outcome

    def _turn(self) -> RunOutcome | None:
        try:
            with self._guard() as guard:
                waited = self._await_term(guard)
                if waited is None or isinstance(waited, RunOutcome):
                    return waited
                return self._lead(waited, guard)
        finally:
            self._adoption.clear()
            self._resign()

    def _guard(self) -> GuardHandle:
        # Started before it is needed, so that its start takes no time from a takeover.
        return GuardHandle(self._job)

    def _await_term(self, guard: GuardHandle) -> Term | RunOutcome | None:
        self._say(f"waiting to lead {self._job.service} as {self._job.candidate}")
        wait = self._job.wait_seconds
        end = math.inf if wait is None else time.monotonic() + wait
        while guard.is_alive():
            if self._interrupts.received:
                return self._interrupted()
            left = max(0.0, end - time.monotonic())
            if term := self._ask(min(_TURN_SECONDS, left)):
                return term
            if not left:
                return RunOutcome(Ending.WAITED, WAITED_STATUS)
        return None

    def _ask(self, timeout: float) -> Term | None:
        try:
            return self._contest.wait(timeout)
        except (UnavailableError, OutcomeUnknownError) as error:
            self._complain(f"waiting for the store: {error}")
            self._interrupts.wait(timeout)
            return None

    def _lead(self, term: Term, guard: GuardHandle) -> RunOutcome:
        self._say(f"leading {self._job.service}, epoch {term.epoch}")
        report = Supervision(term, guard, self._interrupts).run(self._contest.share_fd())
        outcome = self._judge(*(report or self._bury(guard)))
        self._say(f"epoch {term.epoch} is over: {outcome.ending.value}")
        return outcome

    def _bury(self, guard: GuardHandle) -> tuple[str, int]:
        """Clear up after a guard that died, and say what it would have said."""
        self._say("the guard was killed; ending what it guarded")
        command = guard.command_pid
        guard.close()
        status = self._adoption.clear().get(command)
        return (messages.UNSTARTED, 0) if status is None else (messages.STOPPED, status)

    def _judge(self, word: str, number: int) -> RunOutcome:
        if word == messages.ENDED:
            return RunOutcome.of_command(Ending.COMMAND_ENDED, number)
        if word == messages.FAILED:
            return RunOutcome.not_executed(number)
        if not self._interrupts.received:
            return RunOutcome(Ending.LOST, LOST_STATUS)
        if word == messages.UNSTARTED:
            return self._interrupted()
        return RunOutcome.of_command(Ending.INTERRUPTED, number)

    def _interrupted(self) -> RunOutcome:
        status = exit_status.signal_status(self._interrupts.received[0].number)
        return RunOutcome(Ending.INTERRUPTED, status)

    def _resign(self) -> None:
        try:
            self._contest.resign()
        except (UnavailableError, OutcomeUnknownError) as error:
            self._say(f"not resigned, so the lease has to run out: {error}")

    def _complain(self, line: str) -> None:
        if line != self._complaint:
            self._say(line)
        self._complaint = line
