"""Watches: events of listeners, handed to the main thread until a signal ends that."""

import select
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

from kip30.cli._exit_codes import Status, after_signal

E = TypeVar("E")

Listen = Callable[[Callable[[E], object]], object]
Show = Callable[[E], object]

_STDOUT = 1
_LOOK_SECONDS = 0.25
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _End(NamedTuple):
    status: int


def watch(listen: Listen[E], show: Show[E]) -> int:
    """Do as `stay`, but end with `Status.OK` when stdout is closed."""
    events = SimpleQueue[E | _End]()
    threading.Thread(target=_await_hangup, args=(events.put,), daemon=True).start()
    return _stay(events, listen, show)


def stay(listen: Listen[E], show: Show[E]) -> int:
    """Show every event until SIGINT, SIGTERM or SIGHUP and return the exit code.

    Args:
        listen: Given a listener, registers it. It stays registered until the store is closed.
        show: Shows one event, on this thread.
    """
    return _stay(SimpleQueue[E | _End](), listen, show)


def _stay(events: "SimpleQueue[E | _End]", listen: Listen[E], show: Show[E]) -> int:
    with _notified_of_signals(events.put):
        listen(events.put)
        while not isinstance(event := _next(events), _End):
            show(event)
    return event.status


def _next(events: "SimpleQueue[E | _End]") -> E | _End:
    # A signal that comes just before a wait begins does not end it, so no wait may be unlimited.
    while True:
        with suppress(Empty):
            return events.get(timeout=_LOOK_SECONDS)


def _await_hangup(tell: Callable[[_End], object]) -> None:
    """Wait until the reading end of stdout is closed, also while nothing is written."""
    poll = select.poll()
    poll.register(_STDOUT, 0)
    poll.poll()
    tell(_End(Status.OK))


@contextmanager
def _notified_of_signals(tell: Callable[[_End], object]) -> Generator[None]:
    # Putting into a SimpleQueue is safe in a signal handler, as it is in no other queue.
    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {
        number: signal.signal(number, lambda got, _frame: tell(_End(after_signal(got))))
        for number in heard
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
