"""The first thread of a simulation, on which signals and deadlocks raise."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from math import inf
from types import FrameType

from kip30_conformance.simulation.processes import SimulatedProcess, SimulatedThread
from kip30_conformance.simulation.scheduler import Simulation

_SIGNALS = (signal.SIGINT, signal.SIGALRM)
"""Ctrl-C, and the end of the time that pytest-timeout gives a test."""


class FirstThread:
    """Runs one function to its end, with all threads that it starts.

    A signal strikes any simulated thread. That thread may log the exception of the handler and
    continue, or it may be the one that blocks. So the exception is raised there and on this one.
    """

    def __init__(self, simulation: Simulation, function: Callable[[], object]) -> None:
        """Call *function* in *simulation* once `run` is called."""
        self._simulation = simulation
        self._function = function
        self._raised: BaseException | None = None
        self._passed_on: list[BaseException] = []
        self._thread = simulation.spawn(SimulatedProcess(simulation, "test"), "main", self._call)
        simulation.on_failure = self._report

    def run(self) -> None:
        """Return when the function has returned; raise what it raised."""
        with self._signals():
            while not self._thread.is_done:
                try:
                    self._simulation.run(inf, lambda: self._thread.is_done)
                except BaseException as error:  # noqa: BLE001  a deadlock, or raised by a handler
                    self._pass_on(error)
        if self._raised is not None:
            raise self._raised

    def _call(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001  raised again by `run`
            self._raised = error

    def _pass_on(self, error: BaseException) -> None:
        self._passed_on.append(error)
        self._simulation.interrupt(self._thread, error)

    def _report(self, thread: SimulatedThread, error: BaseException) -> None:
        """Report what ended another thread as for one of the system."""
        if error not in self._passed_on:
            given = (type(error), error, error.__traceback__, thread)
            threading.excepthook(threading.ExceptHookArgs(given))

    @contextmanager
    def _signals(self) -> Generator[None]:
        """Wrap the handlers of signals for the duration of a block."""
        with ExitStack() as undone:
            if threading.current_thread() is threading.main_thread():
                for number in _SIGNALS:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        signal.signal(number, self._wrapped(handler))
                        undone.callback(signal.signal, number, handler)
            yield

    def _wrapped(
        self, handler: Callable[[int, FrameType | None], object]
    ) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                if self._simulation.current is not self._thread:
                    self._pass_on(error)
                raise

        return handle
