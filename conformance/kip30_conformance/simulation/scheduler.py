"""Simulated threads under a virtual clock: one runs at a time, and a seed decides which is next.

A simulated thread is a greenlet. It gives control away where it would block and, with a chance that
the seed draws, where it takes a lock. When no thread can run the clock jumps to the next timer. So
the same seed gives the same run, however busy the machine is.
"""

import itertools
import os
import random
import zlib
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import greenlet

from kip30_conformance.simulation.timers import Timers

_STEP_SECONDS = 20e-6
"""A thread takes up to so long, by the virtual clock, each time that it runs."""

_LONG_TURN = 1_000
"""A thread that takes so many locks, or reads the clock so often, without blocking gives way.

It may wait for other threads, or for a moment, in a loop.
"""

_LONG_TURN_SECONDS = 1e-3
"""How long such a turn takes, by the virtual clock."""

_BOOT_SECONDS = 1_000.0
"""What the clock of a process shows when it begins."""


class StuckError(Exception):
    """No thread can run, and no timer is due: a deadlock."""


class SimulatedProcess:
    """What a process is to the scheduler: it can be paused or killed, and has a clock of its own.

    Attributes:
        name: Shown in traces and failures.
        rate: How fast its clock runs: 1 is exact.
        is_paused: Whether its threads do not run. Its clock does.
        is_dead: Whether its threads never run again.
        pid: What `os.getpid` returns there.
    """

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        *,
        rate: float = 1.0,
        booted_at: float | None = None,
        pid: int | None = None,
    ) -> None:
        """Begin now, without threads.

        Args:
            simulation: Where it runs.
            name: See above.
            rate: See above.
            booted_at: The virtual time from which its clock counts; now, if it is not given.
                Processes of one machine have the same.
            pid: What `os.getpid` returns there; the real one, if it is not given.
        """
        self.name = name
        self.rate = rate
        self.is_paused = False
        self.is_dead = False
        self.pid: int = os.getpid() if pid is None else pid
        self._simulation = simulation
        self._booted_at = simulation.now if booted_at is None else booted_at
        self._numbers = itertools.count(1)

    def now(self) -> float:
        """Return what its clock shows, in seconds."""
        return _BOOT_SECONDS + (self._simulation.now - self._booted_at) * self.rate

    def next_ident(self) -> int:
        """Return a number for a thread, which no other thread of any process has had."""
        return zlib.crc32(self.name.encode()) << 32 | next(self._numbers)


class SimulatedThread:
    """A thread of a process: ready, running, parked or done.

    Attributes:
        process: Where it runs.
        name: Its name.
        ident: Its number.
        is_done: Whether it has returned or raised.
        stand_in: The `threading.Thread` that programs see; None before they look.
        values: Of each `threading.local`, what this thread has set.
    """

    def __init__(
        self,
        simulation: "Simulation",
        process: SimulatedProcess,
        name: str,
        run: Callable[[], object],
    ) -> None:
        """Call *run* once this is switched to."""
        self.process = process
        self.name = name
        self.ident = process.next_ident()
        self.is_done = False
        self.stand_in: Any = None
        self.is_parked = False
        self.has_timed_out = False
        # Counts the times that it was parked: a timer of an earlier time does nothing.
        self.parkings = 0
        # Raised at its next turn.
        self.interruption: BaseException | None = None
        self.joiners: list[SimulatedThread] = []
        self.values: WeakKeyDictionary[object, dict[str, Any]] = WeakKeyDictionary()
        self._simulation = simulation
        self._run = run
        self.greenlet = greenlet.greenlet(self._body, parent=simulation.hub)

    def _body(self) -> None:
        try:
            self._run()
        except greenlet.GreenletExit:
            pass
        except BaseException as error:  # noqa: BLE001  the thread ends as a real one does
            self._simulation.failed(self, error)
        finally:
            self.values.clear()  # finalizers may take locks, so it is not done
            self.is_done = True
            self._simulation.forget(self)


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

    def __init__(self, seed: int, *, interruptions: float = 0.0) -> None:
        """Decide everything by *seed*.

        Args:
            seed: Any number.
            interruptions: The chance that a thread gives way where it takes a lock.
        """
        self.now = 0.0
        self.chance = random.Random(seed)  # noqa: S311  not for secrets: it repeats itself
        self.current: SimulatedThread | None = None
        self.failures: list[str] = []
        self.switches = 0
        self.trace = 0
        self.hub = greenlet.getcurrent()
        self.on_failure: Callable[[SimulatedThread, BaseException], object] | None = None
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

    def failed(self, thread: SimulatedThread, error: BaseException) -> None:
        """Note that *thread* ended with *error*."""
        self.failures.append(f"{thread.process.name}/{thread.name}: {error!r}")
        if self.on_failure is not None:
            self.on_failure(thread, error)

    # -- for threads

    def spawn(
        self, process: SimulatedProcess, name: str, run: Callable[[], object]
    ) -> SimulatedThread:
        """Start a thread of *process* that calls *run*."""
        thread = SimulatedThread(self, process, name, run)
        self._threads[thread] = None
        self._ready.append(thread)
        return thread

    def next_number(self) -> int:
        """Return a number that the simulation has not returned yet."""
        return next(self._tickets)

    def threads(self) -> list[SimulatedThread]:
        """Return the threads that are not done."""
        return list(self._threads)

    def forget(self, thread: SimulatedThread) -> None:
        """Wake the threads that join *thread*, which is done."""
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
            self._ready.append(thread)

    def give_way(self) -> None:
        """Let another thread run here if chance wants it, or after many steps of this one."""
        self.count_step(self._interruptions)

    def count_step(self, chance: float = 0.0) -> None:
        """Let other threads run by *chance*, or if this one has done much since it blocked."""
        thread = self.current
        if thread is None or self._has_ended:
            return
        self._steps += 1
        is_long = self._steps >= _LONG_TURN
        if is_long:
            self.now += _LONG_TURN_SECONDS
        if is_long or (chance and self.chance.random() < chance):
            self._ready.append(thread)
            self._leave(thread)

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
        """
        while True:
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
            self._ready.append(thread)

    def _next(self) -> SimulatedThread | None:
        """Return one of the threads that can run."""
        self._ready = [one for one in self._ready if not (one.is_done or one.process.is_dead)]
        runnable = [one for one in self._ready if not one.process.is_paused]
        if not runnable:
            return None
        return runnable[self.chance.randrange(len(runnable))] if runnable[1:] else runnable[0]
