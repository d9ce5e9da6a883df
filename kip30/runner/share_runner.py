"""The runner of shares: run a command for each share of a group, and give the share up after it.

    WAITING -- a share --> RUNNING
    RUNNING -- the share is wanted back, or lost --> WAITING, once command and descendants are gone
    RUNNING -- the command has ended by itself --> PAUSED if it is to be run again, else over
    RUNNING -- the guard was killed, and the command with it --> PAUSED
    PAUSED -- the end of the pause --> RUNNING, with the same share
    PAUSED -- the share is wanted back, or lost --> WAITING
    any -- a signal, the end of the time to wait --> over

A share is given up after all processes that were started for it are gone, never before. A share
that is lost has ended by its deadline; the guard has ended its processes by then.

The pause is 1 s, doubles up to 60 s, and is 1 s again for another share, or after a run that took
longer than 60 s.
"""

import os
import time

from kip30.errors import OutcomeUnknownError, UnavailableError
from kip30.runner import exit_status
from kip30.runner.guard_handle import GuardHandle, require_guard
from kip30.runner.guarded_run import Supervision, end_orphans_of, run_outcome
from kip30.runner.interrupts import Interrupts
from kip30.runner.job import Ending, RunOutcome, is_shortage
from kip30.runner.orphans import OrphanReaper
from kip30.runner.pauses import Pauses
from kip30.runner.share_job import ShareCommand, ShareJob
from kip30.runner.share_protocols import HeldShare, S, Workshare
from kip30.runner.spare_guard import SpareGuard
from kip30.runner.terminal import Terminal
from kip30.runner.waiting import Poller, Say, interrupted

_LOOK_SECONDS = 0.05


def run_shares(
    workshare: Workshare,
    job: ShareJob,
    *,
    say: Say = lambda _line: None,
    owns_process: bool = False,
) -> RunOutcome:
    """Run a command for each share that *workshare* gets, while it has that share.

    The command finds its share in its environment; see `ShareCommand`. When the share changes, the
    command and its descendants get SIGTERM and the grace, then SIGKILL; then the share is given
    up, and the command starts with the next one. While it does not change the command runs on.

    No item is in two running commands, whichever process is killed or stopped, as far as the
    package promises that for a leader. Signals are treated as by `kip30.runner.run`; Linux and main
    thread only.

    Args:
        workshare: The member. It leaves at the end, but stays the caller's.
        job: The command and what belongs to it.
        say: Gets the progress, a line at a time.
        owns_process: The process ends with this run, and with its status: from the end of the run
            on the signals that it catches are ignored.

    Raises:
        UnsupportedError: No guard can run on this system. Nothing was done.
        UsageError: An item cannot be passed to a command. The command is not running.
        Kip30Error: The workshare failed for good. The command is no longer running.
        OSError: A guard cannot be started, and not only for a shortage, or cannot work. The command
            is not running.
    """
    require_guard()
    if refusal := exit_status.refusal(job.command[0]):
        return RunOutcome.not_executed(refusal)
    with (
        Interrupts(owns_process=owns_process) as interrupts,
        OrphanReaper() as orphans,
        SpareGuard(job.descriptors) as spare,
    ):
        runner = _ShareRunner(
            workshare, job, say=say, interrupts=interrupts, orphans=orphans, spare=spare
        )
        return runner.run()


class _ShareRunner:
    def __init__(  # noqa: PLR0913  the parts of one run
        self,
        workshare: Workshare,
        job: ShareJob,
        *,
        say: Say,
        interrupts: Interrupts,
        orphans: OrphanReaper,
        spare: SpareGuard,
    ) -> None:
        self._workshare = workshare
        self._job = job
        self._say = say
        self._interrupts = interrupts
        self._orphans = orphans
        # Has a guard ready while the member waits for a share, and while a command runs, which may
        # have to make way for that of the next share.
        self._spare = spare
        self._terminal = Terminal()
        self._shares = Poller(workshare.wait, interrupts, say, has_tried=workshare.has_tried)
        workshare.call_on_end(interrupts.wake)

    def run(self) -> RunOutcome:
        try:
            while True:
                self._say(f"waiting for a share of {self._job.group}")
                share = self._shares.wait(self._job.wait_seconds, goes_on=self._is_ready)
                if isinstance(share, RunOutcome):
                    return share
                outcome = None if share is None else self._work_on(share)
                if outcome is not None:
                    return outcome
        finally:
            leave(self._workshare, self._say)

    def _is_ready(self) -> bool:
        self._spare.provide()
        self._orphans.reap_foreign(self._spare.pids)
        return True

    def _look_around(self, guard: GuardHandle) -> None:
        """Do what is due while the command of *guard* runs."""
        self._spare.provide()
        self._orphans.reap_foreign((*self._spare.pids, guard.pid, guard.command_pid))

    def _work_on(self, share: HeldShare) -> RunOutcome | None:
        """Run the command until *share* ends; return the outcome if the run has ended, too."""
        pauses = Pauses()
        try:
            while True:
                started_at = time.monotonic()
                outcome = self._run_or_lack(share)
                if self._is_final(outcome):
                    return outcome
                if outcome.is_shortage:
                    self._say(f"cannot start the command: {os.strerror(outcome.error)}")
                self._pause(share, pauses.after(time.monotonic() - started_at))
                if self._interrupts.received:
                    return interrupted(self._interrupts)
                if why_over(share):
                    return None
        finally:
            self._workshare.give_up(share)

    def _run_or_lack(self, share: HeldShare) -> RunOutcome:
        """Run the command once; a guard that a shortage prevents counts as no execution."""
        try:
            return self._run_once(share)
        except OSError as error:
            if not is_shortage(error.errno):
                raise
            return RunOutcome.not_executed(error.errno or 0)

    def _is_final(self, outcome: RunOutcome) -> bool:
        if outcome.is_shortage:
            return False
        if outcome.ending is Ending.COMMAND_ENDED:
            return not self._job.restart
        return outcome.ending in {Ending.NOT_EXECUTED, Ending.INTERRUPTED}

    def _run_once(self, share: HeldShare) -> RunOutcome:
        self._say(
            f"working on {len(share.items)} items of {self._job.group},"
            f" generation {share.generation}"
        )
        try:
            with ShareCommand(self._job, share) as command, self._spare.take() as guard:
                supervision = Supervision(
                    share,
                    guard,
                    self._interrupts,
                    wanted_back=share.wanted_back,
                    terminal=self._terminal,
                )
                shared = self._workshare.share_fd()
                report = supervision.run(
                    command, shared, meanwhile=lambda: self._look_around(guard)
                )
                # A guard that reports has no descendants left, so there is nothing to look for.
                is_killed = report is None
                report = report or self._end_orphans(guard)
        except BaseException:
            self._orphans.clear(self._spare.pids)
            self._terminal.take_back(restores=True)
            raise
        otherwise = why_over(share) or (Ending.KILLED if is_killed else Ending.LAPSED)
        outcome = run_outcome(report, self._interrupts, otherwise)
        self._terminal.take_back(restores=outcome.ending is not Ending.COMMAND_ENDED)
        self._say(f"generation {share.generation}: {outcome.ending.value}")
        return outcome

    def _end_orphans(self, guard: GuardHandle) -> tuple[str, int]:
        self._say(f"{guard.end()}: ending its command")
        return end_orphans_of(guard, self._orphans, self._spare.pids)

    def _pause(self, share: HeldShare, seconds: float) -> None:
        """Wait before the command is run again, unless the share has ended or a signal comes."""
        if why_over(share):
            return
        self._say(f"running the command again in {seconds:g} s")
        end = time.monotonic() + seconds
        while not (self._interrupts.received or why_over(share)):
            left = end - time.monotonic()
            if left <= 0:
                return
            self._interrupts.wait(min(left, _LOOK_SECONDS))


def leave(workshare: Workshare[S], say: Say) -> None:
    """Leave the group; say so if the store has not confirmed it."""
    try:
        workshare.leave()
    except (UnavailableError, OutcomeUnknownError) as error:
        say(f"leave not confirmed: others get the items when the lease ends: {error}")


def why_over(share: HeldShare) -> Ending | None:
    """Return why *share* has ended; None if it has not."""
    if share.lost.is_set() or not share.is_valid():
        return Ending.SHARE_LOST
    return Ending.WANTED_BACK if share.wanted_back.is_set() else None
