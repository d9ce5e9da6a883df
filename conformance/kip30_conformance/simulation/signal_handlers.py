"""Handlers of signals during a simulation, which run on whichever simulated thread has its turn."""

import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TypeAlias

import greenlet

from kip30_conformance.simulation.scheduler import Simulation

Handler: TypeAlias = Callable[[int, FrameType | None], object]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Those that end a program, and the end of the time that pytest-timeout gives a test."""


@contextmanager
def wrapped_handlers(
    numbers: Iterable[signal.Signals], wrap: Callable[[Handler], Handler]
) -> Generator[None]:
    """Replace the handlers of the signals *numbers* by what *wrap* makes of them.

    Only in the main thread, and not those that the system handles.
    """
    with ExitStack() as undone:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                handler = signal.getsignal(number)
                if callable(handler):
                    signal.signal(number, wrap(handler))
                    undone.callback(signal.signal, number, handler)
        yield


@contextmanager
def raised_by_run(simulation: Simulation) -> Generator[None]:
    """Let `Simulation.run` raise what the handler of a signal raises during the block.

    Otherwise it would end the simulated thread that it strikes, or be an error of that one's work.
    If that thread does not end its turn, a second signal strikes it after all.
    """

    def wrap(handler: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                if greenlet.getcurrent() is simulation.hub or simulation.pending_error is not None:
                    raise
                simulation.pending_error = error

        return handle

    with wrapped_handlers(_ENDING, wrap):
        yield
        simulation.raise_pending_error()
