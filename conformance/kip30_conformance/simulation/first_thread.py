"""The first thread of a simulation, on which signals and deadlocks raise."""

import signal
import threading
from collections.abc import Callable
from math import inf
from types import FrameType

from kip30_conformance.simulation.processes import SimulatedProcess, SimulatedThread
from kip30_conformance.simulation.scheduler import Simulation
from kip30_conformance.simulation.signal_handlers import Handler, wrapped_handlers

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
        with wrapped_handlers(_SIGNALS, self._wrapped):
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

    def _wrapped(self, handler: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                if self._simulation.current is not self._thread:
                    self._pass_on(error)
                raise

        return handle
