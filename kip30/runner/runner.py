"""The runner: wait to lead, run the command under a guard, then give leadership up."""

import os
import time
from collections.abc import Callable

from kip30.driver.clock import SystemClock
from kip30.errors import Kip30Error, OutcomeUnknownError, UnavailableError
from kip30.runner import exit_status
from kip30.runner.guard_handle import GuardHandle, require_guard
from kip30.runner.guarded_run import Supervision, end_orphans_of, run_outcome, runs_out
from kip30.runner.interrupts import Interrupts
from kip30.runner.job import Ending, Job, RunOutcome, TermCommand, is_shortage
from kip30.runner.orphans import OrphanReaper
from kip30.runner.pauses import GuardPauses
from kip30.runner.protocols import Contest, Term
from kip30.runner.terminal import Terminal
from kip30.runner.waiting import Poller, Say

_ENDS_OF_TERM = {Ending.LOST, Ending.KILLED, Ending.STEPPED_DOWN}
_CLOCK = SystemClock()
_LONGEST_ITERATION_SECONDS = 1.0


def run(
    contest: Contest,
    job: Job,
    *,
    say: Say = lambda _line: None,
    owns_process: bool = False,
    mark_alive: Callable[[], None] = lambda: None,
) -> RunOutcome:
    """Run a command whenever, and only while, *contest* is won.

    No two commands of one service overlap, whichever process is killed or stopped: see the package
    for how, and for what is not promised. Linux only, and main thread only: SIGTERM, SIGINT, SIGHUP
    and SIGQUIT are caught meanwhile and passed on to the command and its descendants; a second
    request to end kills them (see `kip30.runner.interrupts.response`). The process should start no
    children of its own while this runs, because it adopts the command's orphans and cannot tell
    them apart.

    Args:
        contest: The candidate. It is resigned at the end, but stays the caller's.
        job: The command and what belongs to it.
        say: Called with each line of progress.
        owns_process: The process ends with this run, and with its status: from the end of the run
            on the signals that it catches are ignored.
        mark_alive: Called in each iteration of the loop, which takes about a second at most; one
            that waits for the store takes up to its operation timeout longer.

    Raises:
        UnsupportedError: No guard can run on this system. Nothing was done.
        Kip30Error: The contest failed for good. The command is no longer running.
        OSError: A guard cannot be started, and not only for a shortage, or cannot work. The command
            is not running.
    """
    require_guard()
    if refusal := exit_status.refusal(job.command[0]):
        return RunOutcome.not_executed(refusal)
    with Interrupts(owns_process=owns_process) as interrupts, OrphanReaper() as adoption:
        return _Runner(contest, job, say, interrupts, adoption, mark_alive).run()


class _Runner:
    def __init__(  # noqa: PLR0913, PLR0917  the parts of one run
        self,
        contest: Contest,
        job: Job,
        say: Say,
        interrupts: Interrupts,
        orphans: OrphanReaper,
        mark_alive: Callable[[], None],
    ) -> None:
        self._contest = contest
        self._job = job
        self._say = say
        self._interrupts = interrupts
        self._orphans = orphans
        self._mark_alive = mark_alive
        self._terminal = Terminal()
        self._pauses = GuardPauses()
        # Why a pause follows this turn, in words; empty unless its guard was killed, or the system
        # was short of something.
        self._setback = ""
        # When a lease ends that was not renewed in time, nor since, by `_CLOCK`. The store may
        # still accept claims under it, and the guard would end each command at once.
        self._lapses_at = 0.0
        self._terms = Poller(contest.wait, interrupts, say, has_tried=contest.has_tried)

    def run(self) -> RunOutcome:
        while True:
            started_at = time.monotonic()
            outcome = self._turn()
            if outcome and (self._job.once or not self._goes_on_after(outcome)):
                return outcome
            if (left := self._lapses_at - _CLOCK.now()) > 0:
                self._pause("the lease was not renewed in time", left)
            elif self._setback:
                life = time.monotonic() - started_at
                self._pause(self._setback, self._pauses.after(life))

    def _goes_on_after(self, outcome: RunOutcome) -> bool:
        if outcome.is_shortage:
            self._setback = _shortage(outcome.error)
        return outcome.is_shortage or outcome.ending in _ENDS_OF_TERM

    def _turn(self) -> RunOutcome | None:
        """Return the outcome of one term; None if there was none, for want of a guard."""
        self._setback = ""
        try:
            return self._guarded_turn()
        except OSError as error:
            if self._job.once or not is_shortage(error.errno):
                raise
            self._setback = _shortage(error.errno or 0)
            return None
        finally:
            self._terminal.take_back(restores=True)
            self._resign()

    def _guarded_turn(self) -> RunOutcome | None:
        try:
            with self._guard() as guard:
                waited = self._await_term(guard)
                if waited is None:
                    self._setback = guard.end()
                    return None
                if isinstance(waited, RunOutcome):
                    return waited
                return self._lead(waited, guard)
        except BaseException:
            # The guard may have been killed as it was closed. One that reports leaves nothing.
            self._orphans.clear()
            raise

    def _pause(self, why: str, seconds: float) -> None:
        """Wait before the next guard is started, unless a signal comes. Others may lead by then."""
        self._say(f"{why}: retry in {seconds:.2g} s")
        end = time.monotonic() + seconds
        while not self._interrupts.received and (left := end - time.monotonic()) > 0:
            self._mark_alive()
            self._interrupts.wait(min(left, _LONGEST_ITERATION_SECONDS))

    def _guard(self) -> GuardHandle:
        # Started before it is needed, so that its start takes no time from a takeover.
        return GuardHandle(self._job.descriptors)

    def _await_term(self, guard: GuardHandle) -> Term | RunOutcome | None:
        self._say(f"waiting to lead {self._job.service} as {self._job.candidate}")
        found = self._terms.wait(self._job.wait_seconds, goes_on=lambda: self._is_ready(guard))
        gave_up = found is None or (isinstance(found, RunOutcome) and found.ending is Ending.WAITED)
        if gave_up and (reason := self._contest.finished()):
            self._say(f"nothing to run: {reason}")
            return RunOutcome(Ending.FINISHED, 0)
        return found

    def _is_ready(self, guard: GuardHandle) -> bool:
        self._look_around(guard)
        return guard.is_alive() and not self._contest.finished()

    def _look_around(self, guard: GuardHandle) -> None:
        """Do what is due in each iteration."""
        self._mark_alive()
        self._orphans.reap_foreign((guard.pid, guard.command_pid))

    def _lead(self, term: Term, guard: GuardHandle) -> RunOutcome:
        self._say(f"leading {self._job.service}, epoch {term.epoch}")
        supervision = Supervision(
            term,
            guard,
            self._interrupts,
            wanted_back=term.step_down_requested,
            terminal=self._terminal,
        )
        command = TermCommand(self._job, term.epoch)
        report = supervision.run(
            command, self._contest.share_fd(), meanwhile=lambda: self._look_around(guard)
        )
        is_killed = report is None
        report = report or self._end_orphans(guard)
        has_term = term.is_valid() and not term.lost.is_set()
        otherwise = Ending.KILLED if is_killed and has_term else Ending.LOST
        if has_term and not is_killed and term.step_down_requested.is_set():
            otherwise = Ending.STEPPED_DOWN
        outcome = run_outcome(report, self._interrupts, otherwise)
        if outcome.ending is Ending.LOST and has_term and runs_out(term):
            self._lapses_at = term.deadline
        self._terminal.take_back(restores=outcome.ending is not Ending.COMMAND_ENDED)
        why = f": {term.ending_reason}" if outcome.ending is Ending.LOST else ""
        self._say(f"epoch {term.epoch} is over: {outcome.ending.value}{why}")
        # A command that ends at a signal may exit with 0 although it has not done its work.
        was_left_alone = outcome.ending is Ending.COMMAND_ENDED and not self._interrupts.received
        if was_left_alone and not outcome.status:
            self._note_success()
        return outcome

    def _note_success(self) -> None:
        try:
            self._contest.note_success(goes_on=self._goes_on_noting)
        except Kip30Error:
            self._say("the command has succeeded, but may run again, because that was not noted:")
            raise

    def _goes_on_noting(self) -> bool:
        self._mark_alive()
        return not self._interrupts.received

    def _end_orphans(self, guard: GuardHandle) -> tuple[str, int]:
        self._setback = guard.end()
        self._say(f"{self._setback}: ending its command")
        return end_orphans_of(guard, self._orphans)

    def _resign(self) -> None:
        self._mark_alive()
        try:
            self._contest.resign()
        except (UnavailableError, OutcomeUnknownError) as error:
            self._say(f"resignation not confirmed: leadership ends with the lease: {error}")


def _shortage(number: int) -> str:
    return f"cannot start the command: {os.strerror(number)}"
