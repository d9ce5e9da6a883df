"""Stand-ins of the threads, timers and queues of the standard library."""

import queue
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self

from typing_extensions import override

from kip30_conformance.simulation.locks import SimulatedCondition, SimulatedEvent
from kip30_conformance.simulation.present import found, running_thread, simulation
from kip30_conformance.simulation.processes import SimulatedThread


class Thread:
    """A thread, which runs in the process of the thread that starts it."""

    def __init__(  # noqa: PLR0913  those of `threading.Thread`
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Sequence[object] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        """Take what `threading.Thread` takes."""
        del group
        self._target = target
        self._args = args
        self._kwargs = kwargs or {}
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._thread: SimulatedThread | None = None
        self._number = simulation().next_number()

    @override
    def __hash__(self) -> int:
        """Order sets of threads, such as that of a pool, by age instead of by address."""
        return self._number

    @classmethod
    def of(cls, thread: SimulatedThread) -> Self:
        """Return the one that programs see for *thread*."""
        if thread.stand_in is None:
            thread.stand_in = cls(name=thread.name)
            thread.stand_in._thread = thread  # noqa: SLF001  of its own class
        found: Self = thread.stand_in
        return found

    def run(self) -> None:
        """Call the target."""
        try:
            if self._target is not None:
                self._target(*self._args, **self._kwargs)
        finally:
            # As the real one does: what they refer to may be closed when it is dropped.
            self._target, self._args, self._kwargs = None, (), {}

    def start(self) -> None:
        """Start it."""
        if self._thread is not None:
            raise RuntimeError("threads can only be started once")
        present = simulation()
        if present.current is None:
            raise RuntimeError("an event of the simulation starts no thread")
        self._thread = present.spawn(present.current.process, self.name, self.run)
        self._thread.stand_in = self

    def is_alive(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._thread is not None and not self._thread.is_done

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end. After the simulation nothing is left to wait for."""
        present, thread = found(), self._thread
        if thread is None:
            raise RuntimeError("cannot join thread before it is started")
        if present is None:
            return
        if thread is present.current:
            raise RuntimeError("cannot join current thread")
        if not thread.is_done and present.current is not None:
            joiner = present.current
            thread.joiners.append(joiner)
            try:
                present.park(timeout)
            finally:  # so that the end of the thread does not wake it from a later wait
                thread.joiners.remove(joiner)

    @property
    def ident(self) -> int | None:
        """Its number; None before it was started."""
        return None if self._thread is None else self._thread.ident

    native_id = ident


class SimulatedTimer(Thread):
    """A thread that waits, and then calls a function unless it was cancelled."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Call *function* after *interval* seconds."""
        super().__init__(target=function, name="timer", args=args, kwargs=kwargs)
        self._interval = interval
        self._cancelled = SimulatedEvent()

    def cancel(self) -> None:
        """Do not call it."""
        self._cancelled.set()

    @override
    def run(self) -> None:
        if not self._cancelled.wait(self._interval):
            super().run()


class Local:
    """Attributes that each simulated thread has for itself."""

    def __getattr__(self, name: str) -> Any:
        """Return what the running thread has set."""
        try:
            return self._own()[name]
        except KeyError:
            raise AttributeError(name) from None

    @override
    def __setattr__(self, name: str, value: object) -> None:
        """Set it for the running thread."""
        self._own()[name] = value

    @override
    def __delattr__(self, name: str) -> None:
        """Delete what the running thread has set."""
        if self._own().pop(name, self) is self:
            raise AttributeError(name)

    def _own(self) -> dict[str, Any]:
        return running_thread().values.setdefault(self, {})


class SimulatedQueue:
    """A queue, with a bound or without."""

    def __init__(self, maxsize: int = 0) -> None:
        """Start empty; never hold more than *maxsize* items, unless that is 0."""
        self._most = maxsize
        self._items: deque[Any] = deque()
        self._changed = SimulatedCondition()

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002
        """Add *item*.

        Raises:
            queue.Full: There is no room in time.
        """
        with self._changed:
            if not self._changed.wait_for(self._has_room, timeout if block else 0):
                raise queue.Full
            self._items.append(item)
            self._changed.notify_all()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002
        """Remove and return the oldest item.

        Raises:
            queue.Empty: There is none in time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout if block else 0):
                raise queue.Empty
            self._changed.notify_all()
            return self._items.popleft()

    def _has_room(self) -> bool:
        return not self._most or len(self._items) < self._most

    def get_nowait(self) -> Any:
        """Remove and return the oldest item, or raise `queue.Empty`."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Return whether there is no item."""
        return not self._items

    def qsize(self) -> int:
        """Return how many items there are."""
        return len(self._items)
