"""The longest iterations of an event loop, and the threads that kip30 has meanwhile."""

import asyncio
import gc
import os
import selectors
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from typing_extensions import override

_OWN = "kip30"
"""The beginning of the names of kip30's threads, those of its stores included."""


class LoopUse(NamedTuple):
    """The longest iterations of a loop, in seconds, and the most threads, for some time.

    Attributes:
        computing: Of the loop's thread on a processor, without passes of the garbage collector.
        blocked: While the loop's thread waited for something else than a processor, such as a lock;
            also the interpreter's. Where the system does not say how long it waited for a
            processor, that is included.
        collecting: In the garbage collector, on any thread: it stops them all.
        elapsed: By the clock.
        own_threads: How many threads kip30 had of each name, when they were the most.
        other_threads: The same of threads of other names.
    """

    computing: float
    blocked: float
    collecting: float
    elapsed: float
    own_threads: Mapping[str, int]
    other_threads: Mapping[str, int]


class _Moment(NamedTuple):
    """The clocks of the loop's thread, and of the collector on any thread and on this one."""

    elapsed: float
    processor: float
    delayed: float
    collecting: float
    collecting_here: float
    collecting_processor: float

    def since(self, begun: "_Moment") -> "_Moment":
        return _Moment(*(now - then for now, then in zip(self, begun, strict=True)))

    @property
    def computing(self) -> float:
        return self.processor - self.collecting_processor

    @property
    def blocked(self) -> float:
        here = self.elapsed - self.processor - self.delayed
        return here - (self.collecting - self.collecting_here)


class LoopMeter(selectors.DefaultSelector):
    """The selector of an event loop that measures the loop: an iteration is between two waits."""

    def __init__(self) -> None:
        """Measure nothing yet."""
        super().__init__()
        self._collector = _Collector()
        self._begun: _Moment | None = None
        self._run_delay: int | None = None
        self._count = 0
        self._most = _IDLE

    @contextmanager
    def running(self) -> Generator[None]:
        """Measure in the block, in which the calling thread runs the loop."""
        self._collector.thread = threading.current_thread()
        with suppress(OSError):
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._run_delay = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        gc.callbacks.append(self._collector.note)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collector.note)
            if self._run_delay is not None:
                os.close(self._run_delay)

    def lap(self) -> LoopUse:
        """Return what was measured since the last call, and begin again."""
        use, self._most = self._most, _IDLE
        self._count = 0
        return use

    @override
    def select(self, timeout: float | None = None) -> Any:
        # Reading the delay lets other threads have the interpreter, so it is outside the iteration.
        if self._begun is not None:
            ended = self._now()
            self._note(ended._replace(delayed=self._delayed()).since(self._begun))
        events = super().select(timeout)
        delayed = self._delayed()
        self._begun = self._now()._replace(delayed=delayed)
        return events

    def _note(self, took: _Moment) -> None:
        most = self._most
        self._most = most._replace(
            computing=max(most.computing, took.computing),
            blocked=max(most.blocked, took.blocked),
            collecting=max(most.collecting, took.collecting),
            elapsed=max(most.elapsed, took.elapsed),
        )
        if (count := threading.active_count()) != self._count:
            self._count = count
            self._note_threads()

    def _note_threads(self) -> None:
        names = Counter(thread.name for thread in threading.enumerate())
        own = {name: count for name, count in names.items() if name.startswith(_OWN)}
        others = {name: count for name, count in names.items() if name not in own}
        self._most = self._most._replace(
            own_threads=max(self._most.own_threads, own, key=_total),
            other_threads=max(self._most.other_threads, others, key=_total),
        )

    def _now(self) -> _Moment:
        return _Moment(time.perf_counter(), time.thread_time(), 0.0, *self._collector.used())

    def _delayed(self) -> float:
        """Return for how long this thread has waited for a processor, if the system says so."""
        if self._run_delay is None:
            return 0.0
        return int(os.pread(self._run_delay, 100, 0).split()[1]) / 1e9


_IDLE = LoopUse(0.0, 0.0, 0.0, 0.0, {}, {})


def _total(threads: Mapping[str, int]) -> int:
    return sum(threads.values())


class _Collector:
    """Seconds that the garbage collector took so far."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        # By the clock, on any thread and on that of the loop; there also on a processor.
        self._elapsed = self._elapsed_here = self._processor_here = 0.0
        # The clocks when the present pass began.
        self._since: float | None = None
        self._processor_since = 0.0

    def note(self, phase: str, _info: object) -> None:
        """Note the begin or end of a pass; see `gc.callbacks`."""
        is_here = threading.current_thread() is self.thread
        if phase == "start":
            self._since, self._processor_since = time.perf_counter(), time.thread_time()
        elif self._since is not None:
            seconds, self._since = time.perf_counter() - self._since, None
            self._elapsed += seconds
            if is_here:
                self._elapsed_here += seconds
                self._processor_here += time.thread_time() - self._processor_since

    def used(self) -> tuple[float, float, float]:
        """Return the three clocks; a pass on another thread that has just ended is included."""
        since = self._since
        present = 0.0 if since is None else time.perf_counter() - since
        return self._elapsed + present, self._elapsed_here, self._processor_here


@contextmanager
def metered_runner() -> Generator[tuple[asyncio.Runner, LoopMeter]]:
    """Yield a runner, and the meter of its loop."""
    meter = LoopMeter()
    with (
        meter.running(),
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(meter)) as runner,
    ):
        yield runner, meter
