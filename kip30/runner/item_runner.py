"""The runner of items: run a command for each item of a group, and give each item up after it.

One item:

    DUE -- there is room for a command --> RUNNING
    RUNNING -- the item is wanted back, or lost --> given up, once command and descendants are gone
    RUNNING -- the command has ended by itself --> PAUSED if it is to be run again, else DONE
    RUNNING -- the guard was killed, and the command with it --> PAUSED, once descendants are gone
    PAUSED -- the end of the pause --> DUE
    DUE, PAUSED, DONE -- the item is wanted back, or lost --> given up

Each command has a guard of its own. One thread looks after all of them, so nothing in here waits
for one of them alone: a guard that is not informed for too long ends its command.
"""

import math
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

from kip30.runner import exit_status
from kip30.runner.guard import messages
from kip30.runner.guard_handle import require_guard
from kip30.runner.guarded_run import look_seconds, run_outcome
from kip30.runner.interrupts import Interrupts
from kip30.runner.item_run import ItemRun
from kip30.runner.job import Ending, RunOutcome, is_shortage
from kip30.runner.orphans import OrphanReaper
from kip30.runner.share_job import ShareJob
from kip30.runner.share_protocols import HeldItem, ItemWorkshare
from kip30.runner.share_runner import leave, why_over
from kip30.runner.spare_guard import SpareGuard
from kip30.runner.waiting import Poller, Say, interrupted

_MOST_STARTING = 4
"""Number of guards starting at once: hundreds of interpreters would each take seconds to start."""
_SHORT_LOOK_SECONDS = 0.005
_MOST_GIVEN_UP = 200
"""Number of items without a process that are given up between two looks at the guards."""


def run_items(
    workshare: ItemWorkshare,
    job: ShareJob,
    *,
    most: int,
    say: Say = lambda _line: None,
    owns_process: bool = False,
) -> RunOutcome:
    """Run a command for each item that *workshare* gets, while it has that item.

    The command finds its item in its arguments and its environment; see `ItemCommand`. When an item
    is wanted back, its command and descendants get SIGTERM and the grace, then SIGKILL; then the
    item is given up. The commands of other items are left alone.

    A command that ends by itself is not run again while the item stays, unless the job says so. The
    run ends with a signal, which is treated as by `kip30.runner.run` for all commands together; its
    status is 128 and the signal's number. Linux and main thread only.

    No item is in two running commands, as `kip30.runner.run_shares` promises it.

    Args:
        workshare: The member. It leaves at the end, but stays the caller's.
        job: The command and what belongs to it.
        most: How many commands run at once. Further items are held, and wait.
        say: Gets the progress, a line at a time.
        owns_process: The process ends with this run, and with its status: from the end of the run
            on the signals that it catches are ignored.

    Raises:
        UnsupportedError: No guard can run on this system. Nothing was done.
        UsageError: An item cannot be passed to a command. No command is running.
        Kip30Error: The workshare failed for good. No command is running.
        OSError: A guard cannot be started, and not only for a shortage. No command is running.
    """
    require_guard()
    if refusal := exit_status.refusal(job.command[0]):
        return RunOutcome.not_executed(refusal)
    with (
        Interrupts(owns_process=owns_process) as interrupts,
        OrphanReaper() as orphans,
        SpareGuard(job.descriptors) as spare,
    ):
        runner = _ItemRunner(
            workshare, job, most, say=say, interrupts=interrupts, orphans=orphans, spare=spare
        )
        return runner.run()


class _ItemRunner:
    def __init__(  # noqa: PLR0913  the parts of one run, which makes them all
        self,
        workshare: ItemWorkshare,
        job: ShareJob,
        most: int,
        *,
        say: Say,
        interrupts: Interrupts,
        orphans: OrphanReaper,
        spare: SpareGuard,
    ) -> None:
        self._workshare = workshare
        self._job = job
        self._most = most
        self._say = say
        self._interrupts = interrupts
        self._orphans = orphans
        # Has a guard ready for the next item, unless others are being started.
        self._spare = spare
        self._items = Poller(workshare.wait, interrupts, say, has_tried=workshare.has_tried)
        workshare.call_on_end(interrupts.wake)
        # The items held: taken from the workshare, and not given up. All collections of items are
        # ordered as a dict's keys are: of ten thousand, one is removed as fast as of ten.
        self._held: dict[ItemRun, None] = {}
        # Those held that are to be started, now or after a pause.
        self._waiting: dict[ItemRun, None] = {}
        # Those with a guard, by its descriptor.
        self._running: dict[int, ItemRun] = {}
        # Those whose guard was killed, while something of any killed guard may be left.
        self._guardless: dict[ItemRun, None] = {}
        # How the run ends; None before that is known. Once it is, no command is started.
        self._outcome: RunOutcome | None = None
        self._poll = select.poll()
        self._poll.register(interrupts, select.POLLIN)
        # When to look after the guards next, by time.monotonic.
        self._look_at = 0.0
        self._look_seconds = _SHORT_LOOK_SECONDS
        # How many items were said to wait.
        self._said_to_wait = 0

    def run(self) -> RunOutcome:
        try:
            while not self._is_over():
                if not self._held and self._outcome is None:
                    self._await_item()
                self._look()
                has_started = self._start_next()
                if not (has_started or self._is_starting_many()):
                    self._is_ready()
                self._say_how_many_wait()
                self._await(self._patience(has_started=has_started))
            return self._outcome or interrupted(self._interrupts)
        finally:
            self._end_all()

    def _is_over(self) -> bool:
        if self._outcome is None and self._interrupts.received:
            self._outcome = interrupted(self._interrupts)
        return self._outcome is not None and not (self._running or self._guardless)

    # -- items

    def _await_item(self) -> None:
        self._say(f"waiting for items of {self._job.group}")
        found = self._items.wait(self._job.wait_seconds, goes_on=self._is_ready)
        if isinstance(found, RunOutcome):
            self._outcome = found
        elif found is not None:
            self._take(found)

    def _take(self, share: HeldItem) -> ItemRun:
        self._look_seconds = look_seconds(share)
        one = ItemRun(share, self._job, self._interrupts)
        self._held[one] = self._waiting[one] = None
        return one

    def _give_up(self, one: ItemRun) -> None:
        del self._held[one]
        self._waiting.pop(one, None)
        self._workshare.give_up(one.share)

    def _due(self) -> list[ItemRun]:
        """Return the items that are held and may be run now, the one that waits longest first."""
        now = time.monotonic()
        due = (one for one in self._waiting if one.due_at <= now)
        return sorted(due, key=lambda one: one.due_at)

    def _room(self) -> int:
        """Return how many more commands may run."""
        return self._most - len(self._running) - len(self._guardless)

    def _say_how_many_wait(self) -> None:
        if self._outcome is not None:
            return
        waiting = max(0, self._workshare.ready() + len(self._due()) - self._room())
        if waiting != self._said_to_wait:
            self._say(f"items that wait: {waiting}; at most {self._most} commands run at once")
        self._said_to_wait = waiting

    # -- starting

    def _start_next(self) -> bool:
        """Start the next command, if there is one to start, and return whether it was tried.

        Only one at a time: the other guards must not wait for many starts.
        """
        if self._outcome is not None or self._room() <= 0 or self._is_starting_many():
            return False
        one = self._next()
        if one is None:
            return False
        if why_over(one.share) or not self._started(one):
            self._give_up(one)
        return True

    def _next(self) -> ItemRun | None:
        due = self._due()
        # Items that have not run yet come first: the others may be due again and again.
        if due and not due[0].due_at:
            return due[0]
        found = self._items.ask() if self._workshare.ready() or not due else None
        if found is not None:
            return self._take(found)
        return due[0] if due else None

    def _is_ready(self) -> bool:
        if self._outcome is None:
            self._spare.provide()
        self._orphans.reap_foreign(self._guards())
        return True

    def _is_starting_many(self) -> bool:
        return sum(one.is_starting() for one in self._running.values()) >= _MOST_STARTING

    def _started(self, one: ItemRun) -> bool:
        """Start the command of an item, or let it wait for a pause; false if the item has ended."""
        try:
            has_started = one.start(self._spare.take, self._workshare.share_fd())
        except OSError as error:
            if not is_shortage(error.errno):
                raise
            pause = one.pause()
            self._say(f"item {one.name}: no guard: {error.strerror}: retry in {pause:g} s")
            return True
        if has_started and one.guard is not None:
            del self._waiting[one]
            self._say(
                f"working on item {one.name} of {self._job.group},"
                f" generation {one.share.generation}"
            )
            self._running[one.guard.fileno()] = one
            self._poll.register(one.guard, select.POLLIN)
        return has_started

    # -- looking after

    def _patience(self, *, has_started: bool) -> float:
        """Return how long the next turn may be put off, in seconds."""
        if has_started:
            return 0.0
        if self._guardless or self._is_starting_many():
            return _SHORT_LOOK_SECONDS
        return max(0.0, self._look_at - time.monotonic())

    def _await(self, seconds: float) -> None:
        """Wait for reports and signals, for *seconds* at most."""
        for descriptor, _event in self._poll.poll(math.ceil(seconds * 1000)):
            if descriptor == self._interrupts.fileno():
                self._look_at = 0.0
            else:
                self._finish(descriptor)

    def _look(self) -> None:
        if self._guardless:
            self._sweep_orphans()
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._look_seconds
        self._interrupts.acknowledge()
        self._orphans.reap_foreign(self._guards())
        ends = self._outcome is not None and not self._interrupts.received
        for one in self._running.values():
            one.look(ends=ends)
        self._give_up_ended()

    def _give_up_ended(self) -> None:
        """Give up items that have ended and have no process; not too many before the next look."""
        ended = (one for one in self._idle() if one.has_ended())
        found = list(islice(ended, _MOST_GIVEN_UP))
        for one in found:
            self._give_up(one)
        if len(found) == _MOST_GIVEN_UP:
            self._look_at = 0.0

    def _idle(self) -> Iterator[ItemRun]:
        """Yield the items that are held and have no process."""
        return (one for one in self._held if one.guard is None and one not in self._guardless)

    def _finish(self, descriptor: int) -> None:
        one = self._running.pop(descriptor)
        self._poll.unregister(descriptor)
        report = one.report()
        if report is None:
            self._say(f"item {one.name}: {one.guard_end()}: ending its command")
            self._guardless[one] = None
        one.close()
        if report is not None:
            self._conclude(one, report, Ending.LAPSED)

    def _sweep_orphans(self) -> None:
        """Kill the processes that killed guards left; decide on their items once they are gone."""
        if self._orphans.sweep(self._guards()):
            guardless, self._guardless = self._guardless, {}
            for one in guardless:
                self._conclude(one, (messages.UNSTARTED, 0), Ending.KILLED)

    def _guards(self) -> set[int]:
        """Return the process ids of the guards that are not reaped yet."""
        guards = {one.guard.pid for one in self._running.values() if one.guard is not None}
        return guards.union(self._spare.pids)

    def _conclude(self, one: ItemRun, report: tuple[str, int], otherwise: Ending) -> None:
        """Decide what follows a run of which no process is left.

        It was ended *otherwise* if neither by itself, nor by a signal, nor with its item.
        """
        over = why_over(one.share)
        outcome = run_outcome(report, self._interrupts, over or otherwise)
        what = outcome.ending.value
        if outcome.ending is Ending.COMMAND_ENDED:
            what = f"ended with status {outcome.status}"
        runs_again = self._runs_again(outcome)
        if runs_again and not (over or self._outcome):
            what = f"{what}: running the command again in {one.pause():g} s"
            self._waiting[one] = None
        self._say(f"item {one.name}: {what}")
        if outcome.ending is Ending.NOT_EXECUTED and not runs_again:
            self._outcome = self._outcome or outcome
        if over:
            self._give_up(one)

    def _runs_again(self, outcome: RunOutcome) -> bool:
        if outcome.ending is Ending.COMMAND_ENDED:
            return self._job.restart
        return outcome.is_shortage or outcome.ending in {Ending.KILLED, Ending.LAPSED}

    def _end_all(self) -> None:
        """End all commands without any grace, if there are some, give all up, and leave."""
        with ExitStack() as ends:
            ends.callback(leave, self._workshare, self._say)
            for one in self._held:
                ends.callback(self._workshare.give_up, one.share)
            ends.callback(self._orphans.clear)
            ends.callback(self._spare.close)
            for one in self._held:
                ends.callback(one.close)
            # All at once, before each one is waited for.
            for one in self._running.values():
                if one.guard is not None:
                    one.guard.kill()
