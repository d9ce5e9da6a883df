"""Simulated threads under a virtual clock: one runs at a time, and a seed decides which is next.

A thread gives control away where it would block and, with a chance that the seed draws, where it
acquires a lock. When no thread can run the clock jumps to the next timer. So
the same seed gives the same run, however busy the machine is.
"""

import itertools
import random
import zlib
from collections.abc import Callable

import greenlet

from kip30_conformance.simulation.processes import SimulatedProcess, SimulatedThread
from kip30_conformance.simulation.timers import Timers

_STEP_SECONDS = 20e-6
"""Most seconds, by the virtual clock, that a thread takes each time that it runs."""

_LONG_TURN = 1_000
"""Locks acquired, or readings of the clock, without blocking, after which a thread gives way.

It may wait for other threads, or for a moment, in a loop.
"""

_LONG_TURN_SECONDS = 1e-3
"""Seconds, by the virtual clock, that such a turn takes."""


class StuckError(Exception):
    """No thread can run, and no timer is due: a deadlock."""


class Simulation:
    """The clock, the timers and the threads of one run.

    Attributes:
        now: The virtual time, in seconds.
        chance: The source of all that is random in the run.
        current: The thread that runs; None between two.
        failures: What threads raised, in words.
        switches: How often a thread was switched to.
        trace: A digest of which thread ran when.
        hub: The greenlet that called `run`.
        on_failure: Called with a thread that has raised, and what.
    """

    def __init__(
        self, seed: int, *, interruptions: float = 0.0, demotions: float | None = None
    ) -> None:
        """Decide everything by *seed*.

        Args:
            seed: Any number.
            interruptions: The chance that a thread gives way where it acquires a lock.
            demotions: If given, threads have random priorities instead of random turns, and this is
                the chance that a thread gets the least one at its turn. It finds orders that need
                one thread to be late for long (PCT: Burckhardt and others, ASPLOS 2010).
        """
        self.now = 0.0
        self.chance = random.Random(seed)  # noqa: S311  not for secrets: it repeats itself
        self.current: SimulatedThread | None = None
        self.failures: list[str] = []
        self.switches = 0
        self.trace = 0
        self.hub = greenlet.getcurrent()
        self.on_failure: Callable[[SimulatedThread, BaseException], object] | None = None
        # Raised by `run` at the end of the present turn.
        self.pending_error: BaseException | None = None
        self._has_priorities = demotions is not None
        self._demotions = demotions or 0.0
        self._interruptions = interruptions
        self._steps = 0  # of the present turn
        self._ready: list[SimulatedThread] = []
        self._threads: dict[SimulatedThread, None] = {}  # keys alone: those that are not done
        self._timers = Timers()
        self._tickets = itertools.count()
        self._has_ended = False

    # -- for events, which never block

    def at(self, moment: float, event: Callable[[], object]) -> None:
        """Call *event* at the virtual time *moment*, or at once if that has passed."""
        self._timers.add(moment, event)

    def kill(self, process: SimulatedProcess) -> None:
        """Let no thread of *process* run any more."""
        process.is_dead = True
        self._ready = [one for one in self._ready if one.process is not process]

    # -- for threads

    def spawn(
        self, process: SimulatedProcess, name: str, run: Callable[[], object]
    ) -> SimulatedThread:
        """Start a thread of *process* that calls *run*."""
        thread = SimulatedThread(process, name, run, hub=self.hub, ended=self._ended)
        if self._has_priorities:
            thread.priority = self.chance.random()
        self._threads[thread] = None
        self._make_ready(thread)
        return thread

    def next_number(self) -> int:
        """Return a number that the simulation has not returned yet."""
        return next(self._tickets)

    def threads(self) -> list[SimulatedThread]:
        """Return the threads that are not done."""
        return list(self._threads)

    def _ended(self, thread: SimulatedThread, error: BaseException | None) -> None:
        """Note that *thread* is done, and wake those that join it."""
        if error is not None:
            self.failures.append(f"{thread.process.name}/{thread.name}: {error!r}")
            if self.on_failure is not None:
                self.on_failure(thread, error)
        self._threads.pop(thread, None)
        for joiner in thread.joiners:
            self.unpark(joiner)

    def park(self, seconds: float | None = None) -> bool:
        """Block the running thread until `unpark`.

        Args:
            seconds: The longest time, by the clock of its process; None: for ever.

        Returns:
            False if that time went by.

        Raises:
            RuntimeError: An event must not block.
        """
        if self._has_ended:
            raise greenlet.GreenletExit
        thread = self.current
        if thread is None:
            raise RuntimeError("an event of the simulation must not block")
        thread.is_parked, thread.has_timed_out = True, False
        thread.parkings += 1
        if seconds is not None:
            self._time_out(thread, max(0.0, seconds) / thread.process.rate)
        self._leave(thread)
        return not thread.has_timed_out

    def interrupt(self, thread: SimulatedThread, error: BaseException) -> None:
        """Raise *error* where *thread* is parked, or has given way."""
        thread.interruption = error
        self.unpark(thread)

    def _leave(self, thread: SimulatedThread) -> None:
        """Let other threads run until the running *thread* has its next turn."""
        self.hub.switch()
        if thread.interruption is not None:
            error, thread.interruption = thread.interruption, None
            raise error

    def unpark(self, thread: SimulatedThread) -> None:
        """Let *thread* run again, if it is parked."""
        if thread.is_parked:
            thread.is_parked = False
            self._make_ready(thread)

    def _make_ready(self, thread: SimulatedThread) -> None:
        if not thread.process.is_dead:
            self._ready.append(thread)

    def give_way(self) -> None:
        """Let another thread run here if chance wants it, or after many steps of this one."""
        self._steps += 1
        if self._steps >= _LONG_TURN:
            self._end_turn(_LONG_TURN_SECONDS)
        elif self._interruptions and self.chance.random() < self._interruptions:
            self._end_turn(0.0)

    def count_step(self) -> None:
        """Let other threads run if the running one has done much since it blocked."""
        self._steps += 1
        if self._steps >= _LONG_TURN:
            self._end_turn(_LONG_TURN_SECONDS)

    def _end_turn(self, seconds: float) -> None:
        """Let other threads run, *seconds* later; events and what ends are not interrupted."""
        thread = self.current
        if thread is not None and not self._has_ended:
            self.now += seconds
            if seconds:  # it may wait in a loop, for a thread with a lesser priority
                self._demote(thread)
            self._make_ready(thread)
            self._leave(thread)

    def _demote(self, thread: SimulatedThread) -> None:
        """Let *thread* run only when no other can, if threads run by priority."""
        thread.priority = -float(self.switches)

    def _time_out(self, thread: SimulatedThread, seconds: float) -> None:
        parking = thread.parkings

        def is_parked() -> bool:
            return thread.is_parked and thread.parkings == parking

        def wake() -> None:
            if is_parked():
                thread.has_timed_out = True
                self.unpark(thread)

        self._timers.add(self.now + seconds, wake, is_parked)

    # -- the loop

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run threads and events until that virtual time, or until *is_over* returns true.

        Raises:
            StuckError: No thread can run any more.
            BaseException: The `pending_error`.
        """
        while True:
            self.raise_pending_error()
            self._timers.call_due(self.now)
            if self.now >= until or is_over():
                return
            thread = self._next()
            if thread is not None:
                self._switch_to(thread)
                continue
            moment = self._timers.next_moment()
            if moment is not None:
                self.now = max(self.now, min(moment, until))
            elif any(not one.process.is_dead for one in self._threads):
                raise StuckError(f"all threads wait for each other at {self.now:.3f} s")
            else:
                self.now = until

    def raise_pending_error(self) -> None:
        """Raise the pending error, if there is one."""
        error, self.pending_error = self.pending_error, None
        if error is not None:
            raise error

    def end(self) -> None:
        """Throw away what is left of all threads: their `finally` blocks run, and cannot block."""
        self._has_ended = True
        for thread in self.threads():
            thread.process.is_dead = True
            if thread.greenlet and not thread.is_done:
                self.current = thread
                thread.greenlet.throw(greenlet.GreenletExit)
        self.current = None

    def _switch_to(self, thread: SimulatedThread) -> None:
        self.switches += 1
        self.now += _STEP_SECONDS * self.chance.random()
        self.trace = zlib.crc32(b"%d %d" % (thread.ident, int(self.now * 1e9)), self.trace)
        if self._demotions and self.chance.random() < self._demotions:
            self._demote(thread)
        try:
            self._ready.remove(thread)
            self.current, self._steps = thread, 0
            thread.greenlet.switch()
        except BaseException:  # of a signal's handler, here or before the switch
            self._keep(thread)
            raise
        finally:
            self.current = None

    def _keep(self, thread: SimulatedThread) -> None:
        """Let *thread* run again if it would be lost, neither ready nor parked."""
        if not (thread.is_done or thread.is_parked or thread in self._ready):
            self._make_ready(thread)

    def _next(self) -> SimulatedThread | None:
        """Return one of the threads that can run."""
        runnable = [one for one in self._ready if not one.process.is_paused]
        if not runnable:
            return None
        if self._has_priorities:
            return max(runnable, key=_priority)
        return runnable[self.chance.randrange(len(runnable))] if runnable[1:] else runnable[0]


def _priority(thread: SimulatedThread) -> float:
    return thread.priority
