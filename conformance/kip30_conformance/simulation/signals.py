"""Signals during a simulation, whose handlers run on whichever simulated thread has its turn."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from types import FrameType

import greenlet

from kip30_conformance.simulation.scheduler import Simulation

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Those that end a program, and the end of the time that pytest-timeout gives a test."""


@contextmanager
def raised_by_run(simulation: Simulation) -> Generator[None]:
    """Let `Simulation.run` raise what the handler of a signal raises during the block.

    Otherwise it would end the simulated thread that it strikes, or be an error of that one's work.
    If that thread does not end its turn, a second signal strikes it after all.
    """
    with ExitStack() as undone:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    signal.signal(number, _wrapped(handler, simulation))
                    undone.callback(signal.signal, number, handler)
        yield
        simulation.raise_interruption()


def _wrapped(
    handler: Callable[[int, FrameType | None], object], simulation: Simulation
) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            is_thread = greenlet.getcurrent() is not simulation.hub
            if is_thread and simulation.interruption is None:
                simulation.interruption = error
            else:
                raise

    return handle
