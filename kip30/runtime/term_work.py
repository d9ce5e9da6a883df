"""The work that runs under a term: its callbacks, and the blocks of `LeaderElection.lead`.

A term ends locally at once, but the work under it takes a moment to stop. The term is not released
in the store before that work has let go, so that no other candidate begins while it still runs.
It can hold the service no longer than the lease would have lasted without another renewal. That
goes for a lost session as well: its lease is in use (`Lease.is_in_use`), and drivers end it in the
store when it no longer is, before they open the next one.

The work itself may end the term: a callback that resigns, or a block that closes the locator. Such
work has then let go, and nothing waits for it.
"""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from kip30.driver.clock import Clock, SystemClock


class ThreadOrTask(NamedTuple):
    """A runner of code: a thread or, in an event loop, a task of that thread's loop."""

    thread: int
    task: object | None = None

    def runs(self, work: "TermWork") -> bool:
        """Return whether *work* cannot continue before the code that this runs continues.

        A thread that waits holds up all tasks of its loop, a task only itself.
        """
        runner = work.present_runner()
        if runner is None or runner.thread != self.thread:
            return False
        return self.task is None or runner.task is self.task


_acting: ContextVar[ThreadOrTask | None] = ContextVar("kip30.acting_as", default=None)


def present_runner() -> ThreadOrTask:
    """Return the thread or task that runs the caller, or that the caller acts for."""
    return _acting.get() or ThreadOrTask(threading.get_ident())


@contextmanager
def acting_as(runner: ThreadOrTask) -> Generator[None]:
    """Let this thread act for *runner*, which waits until it has done so."""
    token = _acting.set(runner)
    try:
        yield
    finally:
        _acting.reset(token)


class Holdable(Protocol):
    """A term or, in the close of a store, all that the store holds.

    Attributes:
        held_until: When it is released in the store even if work still goes on under it, in seconds
            on the clock of leases; infinite before it has ended.
    """

    held_until: float

    def on_work_begun(self) -> None:
        """Note that work runs, where none did."""
        ...

    def on_work_done(self) -> None:
        """Go on: no work is left."""
        ...


class TermWork:
    """One callback or block under a term. It may wait for another *one* that runs first.

    Attributes:
        runner: The thread or task that runs it; None while it waits, or if that is not known.
        outlives_runner: Whether it continues after its runner has ended the term: then it has not
            let go by that, but the runner cannot wait for it.
    """

    __slots__ = ("_runs_first", "outlives_runner", "runner", "term")

    def __init__(
        self,
        term: Holdable,
        runner: ThreadOrTask | None,
        *,
        outlives_runner: bool,
        runs_first: "Callable[[], TermWork | None] | None" = None,
    ) -> None:
        """Begin under *term*; *runs_first* returns the work that runs first."""
        self.term: Holdable = term
        self.runner: ThreadOrTask | None = runner
        self.outlives_runner: bool = outlives_runner
        self._runs_first = runs_first

    def start(self) -> None:
        """Note that the caller runs it now."""
        self.runner, self.outlives_runner, self._runs_first = present_runner(), False, None

    def present_runner(self) -> ThreadOrTask | None:
        """Return the thread or task that must continue before this can."""
        first = self._runs_first() if self._runs_first is not None else None
        return self.runner if first is None else first.runner


_running: ContextVar[TermWork | None] = ContextVar("kip30.running", default=None)


def running_work() -> TermWork | None:
    """Return the work that called the caller, if there is one."""
    return _running.get()


@contextmanager
def running(work: TermWork) -> Generator[None]:
    """Run *work* in this block."""
    token = _running.set(work)
    try:
        yield
    finally:
        _running.reset(token)


class WorkInProgress:
    """All work under the terms of one client. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """Start without work; *clock* is the one of leases."""
        self._clock = clock
        # Guards the table, and is notified when a term is no longer in it.
        self._changed = threading.Condition()
        self._work: dict[Holdable, list[TermWork]] = {}
        self._pid = os.getpid()

    def begin(
        self,
        term: Holdable,
        runner: ThreadOrTask | None = None,
        *,
        outlives_runner: bool = False,
        runs_first: Callable[[], TermWork | None] | None = None,
    ) -> TermWork:
        """Note work under *term*, until `end`; see `TermWork`."""
        work = TermWork(term, runner, outlives_runner=outlives_runner, runs_first=runs_first)
        with self._changed:
            present = self._work.setdefault(term, [])
            present.append(work)
            if len(present) == 1:
                term.on_work_begun()
        return work

    def end(self, work: TermWork) -> None:
        """Note that *work* has ended. Idempotent; nothing happens in a forked child."""
        if os.getpid() == self._pid:
            self._drop(work.term, lambda one: one is work)

    def end_own(self, term: Holdable) -> None:
        """Note that the caller, which ends *term*, does no more work under it."""
        caller = present_runner()
        self._drop(term, lambda one: not one.outlives_runner and caller.runs(one))

    def end_all_of(self, runner: ThreadOrTask) -> None:
        """Record that *runner* does not continue: all its work has ended."""
        with self._changed:
            terms = list(self._work)
        for term in terms:
            self._drop(term, runner.runs)

    def is_held(self, term: Holdable) -> bool:
        """Return whether *term* must not be released in the store yet."""
        return term in self._work and self._clock.now() < term.held_until

    def holds_caller(self, term: Holdable) -> bool:
        """Return whether *term* is held by work that cannot continue before the caller does."""
        caller = present_runner()
        with self._changed:
            return self.is_held(term) and any(map(caller.runs, self._work[term]))

    def wait(self, seconds: float) -> bool:
        """Wait up to *seconds* until all terms have let go; false if one has not.

        The caller ends all terms. Work that cannot go on before the caller does is not waited for.
        """
        with self._changed:
            ended = list(self._work)
        for term in ended:
            self.end_own(term)
        caller = present_runner()
        until = self._clock.now() + seconds
        with self._changed:
            while (held := self._held_by_others(caller)) and self._clock.now() < until:
                first = min(until, *(term.held_until for term in held))
                self._clock.wait(self._changed, max(0.0, first - self._clock.now()))
            return not any(map(self.is_held, self._work))

    def _held_by_others(self, caller: ThreadOrTask) -> list[Holdable]:
        return [
            term
            for term, work in self._work.items()
            if self.is_held(term) and not any(map(caller.runs, work))
        ]

    def _drop(self, term: Holdable, is_over: Callable[[TermWork], bool]) -> None:
        with self._changed:
            work = self._work.get(term)
            if work is None:
                return
            work[:] = [one for one in work if not is_over(one)]
            if work:
                return
            del self._work[term]
            self._changed.notify_all()
        term.on_work_done()


class ReleaseHold:
    """Delays the release of terms that end in `holding`, for the work of one thread.

    That work may be under no callback and in no block. Thread-safe.
    """

    def __init__(self, thread: int) -> None:
        """Hold for *thread*."""
        self.is_used: threading.Event = threading.Event()
        self._thread = thread
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._deadline = float("inf")
        # The work that holds the terms, each with its table; None once they were released.
        self._held: list[tuple[WorkInProgress, TermWork]] | None = []

    def keep(self, progress: WorkInProgress, term: Holdable, seconds: float) -> None:
        """Hold *term*, whose lease is valid for *seconds* from now on."""
        with self._lock:
            if self._held is None:
                return
            self._deadline = min(self._deadline, self._clock.now() + seconds)
            self._held.append((progress, progress.begin(term, ThreadOrTask(self._thread))))
        self.is_used.set()

    def remaining_seconds(self) -> float:
        """Return how long the first of the leases is valid; infinite if nothing is held."""
        return self._deadline - self._clock.now()

    def release(self) -> None:
        """Hold nothing, now and later; the blocks of the thread hold nothing either."""
        with self._lock:
            held, self._held = self._held, None
        for progress, _ in held or ():
            progress.end_all_of(ThreadOrTask(self._thread))


_holding: ContextVar[ReleaseHold | None] = ContextVar("kip30.holding", default=None)


@contextmanager
def holding(hold: ReleaseHold) -> Generator[None]:
    """Let *hold* keep the terms that this thread ends in the block."""
    token = _holding.set(hold)
    try:
        yield
    finally:
        _holding.reset(token)


def present_hold() -> ReleaseHold | None:
    """Return the hold for which the caller ends terms, if there is one."""
    return _holding.get()
