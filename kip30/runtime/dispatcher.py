"""Runs the library's own work and the users' callbacks, on threads started on demand.

A task never runs twice at once, and a wake-up during a run is not lost: the task runs once more. A
task that blocks holds one thread and delays no other task. An idle task costs no thread, and
neither does one that waits for an event loop: its run returns a `Suspended`.

Tasks that wait for the store are the exception: at most `STORE_WORKERS` of them
run at once and the others queue for their turn, first come, first served. When the store is
stalled, a thousand of them block eight threads, and when it recovers they do not all send requests
at the same moment. Callbacks and timers never queue behind them.
"""

import heapq
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

from kip30.driver.clock import Clock
from kip30.driver.kit.thread_start import started
from kip30.errors import UnavailableError
from kip30.metrics.instruments import HistogramFamily
from kip30.runtime.admission import Admission
from kip30.runtime.call_gate import CallGate, Measure
from kip30.runtime.starvation import Starvation

E = TypeVar("E")

log: logging.Logger = logging.getLogger(__name__)

STORE_WORKERS = 8
"""Number of tasks waiting for the store that run at once."""

READERS = 2
"""Number of users' reads that run at once, of those that wait for the store."""

_READY_WORKERS = 4
_IDLE_SECONDS = 2.0
_STARVED_SECONDS = 0.005
_REFUSED_SECONDS = 0.05
"""Seconds before retrying to start a worker when the system had no thread to spare."""


class Suspended(Future[None]):
    """Returned by a callback that continues elsewhere, such as in an event loop.

    The task that called it counts as running until this is done, and holds no thread. If it is
    never done, its task never runs again, and holds no thread either.
    """


class Task:
    """Work that runs whenever it is woken. Made by `Dispatcher.task`."""

    __slots__ = (
        "_dispatcher",
        "_run",
        "admission",
        "calls_back",
        "closed",
        "name",
        "queued",
        "running",
        "woken",
    )

    def __init__(
        self,
        dispatcher: "Dispatcher",
        run: Callable[[], object],
        name: str,
        *,
        admission: "Admission[Task] | None" = None,
        calls_back: bool = False,
    ) -> None:
        """Run on *dispatcher*, which alone uses the attributes."""
        self.admission: Admission[Task] | None = admission
        self.calls_back: bool = calls_back
        self.name: str = name
        self.queued: bool = False
        self.running: bool = False
        self.woken: bool = False
        self.closed: bool = False
        self._dispatcher = dispatcher
        self._run = run

    def wake(self) -> None:
        """Make the task run soon, after this call. Any thread may call; never blocks."""
        self._dispatcher.enqueue(self)

    def wake_at(self, moment: float) -> None:
        """Make the task run when the dispatcher's clock reaches *moment*, in seconds."""
        self._dispatcher.schedule(moment, self)

    def close(self) -> None:
        """Start no run after this returns; one that is under way may end."""
        self.closed = True

    def run(self) -> Suspended | None:
        """Run unless closed; log an exception of the task. Return what the run waits for."""
        if self.closed:
            return None
        try:
            return suspended(self._run())
        except BaseException:  # also SystemExit, which must not end the thread
            log.exception("%s failed", self.name)
            return None


class Dispatcher:
    """A pool of threads for tasks, each started when it is needed, and a timer thread."""

    def __init__(
        self, clock: Clock, *, name: str = "kip30", durations: HistogramFamily | None = None
    ) -> None:
        """Serve tasks whose timers are read from *clock*; measure callbacks by *durations*."""
        self.clock = clock
        self._name = name
        self._durations = durations
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._alarm = threading.Condition(self._lock)
        # The library's own tasks, which nothing may delay; those of them that wait for the store,
        # once they are admitted; and those that call back. The last two take turns, so that
        # neither thousands of callbacks nor a stream of requests keeps the others from a thread.
        self._ready: deque[Task] = deque()
        self._admitted: deque[Task] = deque()
        self._callbacks: deque[Task] = deque()
        self._is_turn_of_callbacks = False
        self._store_tasks: Admission[Task] = Admission(STORE_WORKERS)
        self._reads: Admission[Task] = Admission(READERS, reserved=0)
        self._timers: list[tuple[float, int, Task]] = []
        self._ticket = itertools.count()
        # Keys alone, in the order of their starts: no order depends on addresses.
        self._threads: dict[threading.Thread, None] = {}
        self._timer_thread: threading.Thread | None = None
        self._idle = 0
        self._taken = 0
        # For how long no worker takes a task before there is one more than those that are admitted.
        self._spare_seconds = _STARVED_SECONDS
        # In how many seconds, at most, the timer thread looks for tasks that starve; and whether it
        # will look for a stall.
        self._looks_within = math.inf
        self._looks_for_stall = False
        self._on_close: list[Callable[[], None]] = []
        self._closed = False
        self._refused = False
        """True if the system had no thread to spare for the newest worker; written under the
        lock."""

    def start(self) -> None:
        """Start the timer thread, which also retries workers that the system could not start.

        Raises:
            UnavailableError: The system has no thread to spare.
        """
        with self._lock:
            self._need_timer_thread()
            if self._timer_thread is None:
                raise UnavailableError("the system has no thread to spare: nothing was opened")

    def task(
        self,
        run: Callable[[], object],
        name: str,
        *,
        waits_for_store: bool = False,
        calls_back: bool = False,
    ) -> Task:
        """Return a task that calls *run*; *name* appears in the log if it fails.

        A task that *waits_for_store* must run no user code: it takes one of few places. A task
        that *calls_back* runs users' code. Tasks of both kinds take turns, after all others.
        """
        admission = self._store_tasks if waits_for_store else None
        return Task(self, run, name, admission=admission, calls_back=calls_back)

    def call_task(self, run: Callable[[], object], name: str, *, reads: bool) -> Task:
        """Return a task that makes calls of users, each of which waits for the store.

        It takes one of the places of tasks that wait for the store, in turn with the library's own,
        but never the last one: a call may wait for one of those. One that *reads* takes a place of
        others, because writes must not delay it.
        """
        admission = self._reads if reads else self._store_tasks
        return Task(self, run, name, admission=admission, calls_back=True)

    def serve_loop(self, most: int, stall_seconds: float) -> None:
        """Use few threads from now on: all callbacks are those of an event loop, and do not block.

        Up to *most* tasks wait for the store at once, and one thread does everything else. There is
        one more if none of a kind of these tasks ends (see `Admission`), or if no task at all
        begins, for *stall_seconds*.
        """
        with self._lock:
            self._store_tasks.limit(most, stall_seconds)
            self._spare_seconds = stall_seconds

    def on_close(self, function: Callable[[], None]) -> None:
        """Call *function* in `close`, when no task begins any longer."""
        self._on_close.append(function)

    def measure(self, kind: str) -> Measure | None:
        """Return what measures the calls of a users' callback of *kind*; None without metrics.

        A callback that continues elsewhere is measured until it is done there.
        """
        if self._durations is None:
            return None
        duration = self._durations.series(kind)

        def note(result: object, began: float) -> None:
            rest = suspended(result)
            if rest is None:
                duration.observe(time.monotonic() - began)
            else:
                rest.add_done_callback(lambda _: duration.observe(time.monotonic() - began))

        return note

    def enqueue(self, task: Task) -> None:
        """Queue *task*; if it is running now, it will run again."""
        with self._lock:
            self._enqueue(task)

    def schedule(self, moment: float, task: Task) -> None:
        """Enqueue *task* once the clock reaches *moment*."""
        with self._lock:
            if self._closed:
                return
            heapq.heappush(self._timers, (moment, next(self._ticket), task))
            self._need_timer_thread()
            if self._timers[0][0] == moment:
                self._alarm.notify()

    def close(self, timeout_seconds: float) -> None:
        """Start no further run and wait for the threads, but not for the calling one."""
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._admitted.clear()
            self._callbacks.clear()
            self._store_tasks.clear()
            self._reads.clear()
            self._timers.clear()
            self._work.notify_all()
            self._alarm.notify_all()
            threads = [*self._threads, *([self._timer_thread] if self._timer_thread else [])]
        for function in self._on_close:
            function()
        until = time.monotonic() + timeout_seconds
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    def owns_this_thread(self) -> bool:
        """Return whether the calling thread is one of the pool's."""
        with self._lock:
            return threading.current_thread() in {*self._threads, self._timer_thread}

    def _enqueue(self, task: Task) -> None:
        if self._closed or task.queued:
            return
        if task.running:
            task.woken = True
            return
        task.queued = True
        if task.admission is None or task.admission.admit(task, is_call=task.calls_back):
            self._make_ready(task)
        elif not self._looks_for_stall:
            self._looks_for_stall = True
            self._wake_timer_thread()

    def _make_ready(self, task: Task) -> None:
        self._queue_of(task).append(task)
        if not self._starved():
            self._work.notify()
        elif len(self._threads) < _READY_WORKERS:
            self._start_worker()
        elif self._starved_seconds() < self._looks_within:
            self._wake_timer_thread()

    def _wake_timer_thread(self) -> None:
        self._need_timer_thread()
        self._alarm.notify()

    def _queue_of(self, task: Task) -> deque[Task]:
        if task.admission is not None:
            return self._admitted
        return self._callbacks if task.calls_back else self._ready

    def _start_worker(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"{self._name}-worker", daemon=True)
        self._refused = not started(thread)
        if self._refused:
            self._wake_timer_thread()  # which retries
        else:
            self._threads[thread] = None

    def _need_timer_thread(self) -> None:
        if self._timer_thread is None:
            name = f"{self._name}-timer"
            thread = threading.Thread(target=self._run_timers, name=name, daemon=True)
            self._timer_thread = thread if started(thread) else None

    def _serve(self) -> None:
        while task := self._next():
            rest = task.run()
            if rest is None:
                self._finished(task)
            else:
                rest.add_done_callback(partial(self._resumed, task))
            del task, rest  # an idle thread must keep nothing alive

    def _next(self) -> Task | None:
        with self._lock:
            while not self._waiting() and not self._closed:
                self._idle += 1
                notified = self._work.wait(_IDLE_SECONDS)
                self._idle -= 1
                if not notified and not self._waiting():
                    break
            if self._closed or not self._waiting():
                self._threads.pop(threading.current_thread(), None)
                return None
            task = self._next_queue().popleft()
            self._taken += 1
            task.queued, task.running = False, True
            return task

    def _next_queue(self) -> deque[Task]:
        if self._ready:
            return self._ready
        if not (self._admitted and self._callbacks):
            return self._admitted or self._callbacks
        self._is_turn_of_callbacks = not self._is_turn_of_callbacks
        return self._callbacks if self._is_turn_of_callbacks else self._admitted

    def _resumed(self, task: Task, _rest: Future[None]) -> None:
        self._finished(task)

    def _finished(self, task: Task) -> None:
        with self._lock:
            task.running = False
            if task.admission is not None and (
                admitted := task.admission.ended(is_call=task.calls_back)
            ):
                # The calling worker takes a task next, so this task needs no other worker.
                self._admitted.append(admitted)
            # Behind those that wait already, so that a task woken often does not starve them.
            if task.woken:
                task.woken = False
                self._enqueue(task)

    def _run_timers(self) -> None:
        """Fire timers, and add a worker whenever work waits and no worker takes it."""
        starvation = Starvation()
        with self._lock:
            while not self._closed:
                self._ring_timers()
                self._relieve_store_tasks()
                if not self._starved():
                    starvation.end()
                elif starvation.needs_worker(self._taken, self._starved_seconds()):
                    self._start_worker()
                if self._starved():
                    self._looks_within = self._starved_seconds()
                self._looks_for_stall = self._store_tasks.queued()
                self.clock.wait(self._alarm, self._pause())
                self._looks_within = math.inf

    def _relieve_store_tasks(self) -> None:
        admitted = self._store_tasks.relief(time.monotonic())
        if admitted is not None:
            self._make_ready(admitted)

    def _starved(self) -> bool:
        """Return whether more tasks wait than workers are starting or about to take one."""
        return self._waiting() > self._idle

    def _starved_seconds(self) -> float:
        if self._refused:
            return _REFUSED_SECONDS
        has_spare = len(self._threads) > self._store_tasks.running + self._reads.running
        return self._spare_seconds if has_spare else _STARVED_SECONDS

    def _waiting(self) -> int:
        return len(self._ready) + len(self._admitted) + len(self._callbacks)

    def _ring_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.clock.now():
            self._enqueue(heapq.heappop(self._timers)[2])

    def _pause(self) -> float | None:
        now = time.monotonic()
        starved = self._starved_seconds() if self._starved() else math.inf
        timer = self._timers[0][0] - self.clock.now() if self._timers else math.inf
        pause = max(0.0, min(starved, timer, self._store_tasks.stalls_at(now) - now))
        return None if pause == math.inf else pause


class Delivery(Generic[E]):
    """Delivers events to one callback, one after the other, skipping none."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        callback: Callable[[E], object] | None,
        name: str,
        *,
        kind: str = "",
    ) -> None:
        """Deliver on *dispatcher*; without a *callback* events are dropped.

        Calls of a users' callback are measured as those of *kind*.
        """
        self._callback = callback
        self._events: deque[E] = deque()
        self._gate = CallGate(dispatcher.measure(kind) if kind else None)
        self._task = dispatcher.task(self._deliver, name, calls_back=True)

    def send(self, event: E) -> None:
        """Queue a call of the callback with *event*, after all events sent before."""
        if self._callback is not None:
            self._events.append(event)
            self._task.wake()

    def close(self) -> None:
        """Start no call after this returns."""
        self._task.close()
        self._gate.close()

    def _deliver(self) -> Suspended | None:
        while self._events and not self._task.closed:
            if rest := self._call(self._events.popleft()):
                self._task.wake()  # for the events after it, once it is done
                return rest
        return None

    def _call(self, event: E) -> Suspended | None:
        try:
            if self._callback is None:
                return None
            return suspended(self._gate.call(self._callback, event))
        except BaseException:  # the next events must be delivered all the same
            log.exception("%s raised", self._task.name)
            return None


def suspended(result: object) -> Suspended | None:
    """Return the result of a callback if it continues elsewhere; any other result is ignored.

    Other futures are the user's own: a callback may submit work to a pool and return its future.
    """
    return result if isinstance(result, Suspended) else None
