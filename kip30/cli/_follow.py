"""Watches: events of listeners, handed to the main thread until a signal ends that.

Meanwhile the store is asked now and then whether it answers: an outage is printed once, and a store
that was replaced ends the watch, because no listener is called any more.
"""

import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from kip30.cli._exit_codes import Status, after_signal
from kip30.cli._failures import explain, say
from kip30.driver.kit.thread_start import start_eventually
from kip30.errors import Kip30Error, UnavailableError
from kip30.locator import PluginLocator

if TYPE_CHECKING:
    from kip30.runner.retried_call import StoreProbe

E = TypeVar("E")


class Outage(NamedTuple):
    """An event: what the listener does itself failed with *error*, and is tried again.

    Once for each outage.
    """

    error: Kip30Error


Listen = Callable[[Callable[[E | Outage], object]], object]
Show = Callable[[E], object]

_STDOUT = 1
_LOOK_SECONDS = 0.25
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _End(NamedTuple):
    status: int


def watch(locator: PluginLocator, listen: Listen[E], show: Show[E]) -> int:
    """Do as `stay`, but end with `Status.OK` when stdout is closed.

    The listener blocks until the event before was shown, and must be called by other threads. So a
    reader that stalls costs no memory: changes are merged meanwhile, as for any slow callback.
    """
    events = SimpleQueue[E | Outage | _End]()
    turns = _Turns(events.put)
    start_eventually(
        threading.Thread(target=_await_hangup, args=(events.put,), name="kip30-hangup", daemon=True)
    )
    try:
        return _stay(locator, events, lambda _: listen(turns.tell), show, shown=turns.shown)
    finally:
        turns.end()


def stay(locator: PluginLocator | None, listen: Listen[E], show: Show[E]) -> int:
    """Show every event until SIGINT, SIGTERM or SIGHUP and return the exit code.

    Args:
        locator: The open store; None if there is none.
        listen: Given a listener, registers it. It stays registered until the store is closed.
        show: Shows one event, on this thread.

    Raises:
        AuthenticationError, StoreError: The store rejects the credentials now, or was replaced or
            removed.
    """
    return _stay(locator, SimpleQueue[E | Outage | _End](), listen, show)


def _stay(
    locator: PluginLocator | None,
    events: "SimpleQueue[E | Outage | _End]",
    listen: Listen[E],
    show: Show[E],
    *,
    shown: Callable[[], object] = lambda: None,
) -> int:
    outages = _Outages(locator)
    with _EndingBySignals(events.put) as signals:
        listen(events.put)
        while not isinstance(event := _next(events, outages), _End):
            if isinstance(event, Outage):
                signals.show(outages.begin, event.error)
            else:
                signals.show(show, event)
            shown()
    return event.status


def pause(seconds: float) -> bool:
    """Wait for *seconds*, or until stdout has no reader; return whether it has none.

    A signal ends the wait as it ends the command.
    """
    reader_gone = select.poll()
    reader_gone.register(_STDOUT, 0)
    until = time.monotonic() + seconds
    # In short steps: a signal that comes just before a wait begins does not end it.
    while (left := until - time.monotonic()) > 0:
        if reader_gone.poll(min(left, _LOOK_SECONDS) * 1000):
            return True
    return False


class _Turns(Generic[E]):
    """Passes events of a listener on, each once the one before was shown."""

    def __init__(self, tell: Callable[[E], object]) -> None:
        self._tell = tell
        self._free = threading.Semaphore()
        self._is_over = False

    def tell(self, event: E) -> None:
        """Wait for the turn of *event*, and pass it on unless the watch has ended."""
        self._free.acquire()
        if self._is_over:
            self._free.release()  # for the next one that waits
        else:
            self._tell(event)

    def shown(self) -> None:
        """Let the next event pass."""
        self._free.release()

    def end(self) -> None:
        """Let every call of `tell` return, now and later: closing the store waits for them."""
        self._is_over = True
        self._free.release()


class _Outages:
    """Prints each outage of the store once."""

    def __init__(self, locator: PluginLocator | None) -> None:
        self._locator = locator
        self._probe: StoreProbe | None = None
        self._is_known = False

    def begin(self, error: Kip30Error) -> None:
        """Print that the store cannot be reached, unless it was printed."""
        if not self._is_known:
            say(f"waiting for the store: {explain(error).what}")
        self._is_known = True

    def look(self) -> None:
        """Print an outage that has begun.

        Raises:
            Kip30Error: It is none that can end.
        """
        if self._locator is None:
            return
        if self._probe is None:
            from kip30.runner.retried_call import StoreProbe  # noqa: PLC0415  slow to import

            self._probe = StoreProbe(self._locator)
        try:
            self._probe.check()
        except UnavailableError as error:
            self.begin(error)
        else:
            self._is_known = False


def _next(events: "SimpleQueue[E | Outage | _End]", outages: _Outages) -> E | Outage | _End:
    # A signal that comes just before a wait begins does not end it, so no wait may be unlimited.
    while True:
        with suppress(Empty):
            return events.get(timeout=_LOOK_SECONDS)
        outages.look()


def _await_hangup(tell: Callable[[_End], object]) -> None:
    """Wait until the reading end of stdout is closed, also while nothing is written."""
    poll = select.poll()
    poll.register(_STDOUT, 0)
    poll.poll()
    tell(_End(Status.OK))


class _EndingBySignals:
    """While this lasts, a signal ends the watch: between events as an event, and in one at once.

    What shows an event may wait without limit, for a reader of the output that does not read. So
    the signal does there what it does in other commands: it raises.
    """

    def __init__(self, tell: Callable[[_End], object]) -> None:
        # Putting into a SimpleQueue is safe in a signal handler, as it is in no other queue.
        self._tell = tell
        self._before: dict[int, Any] = {}
        self._is_ending = False
        self._is_showing = False

    def __enter__(self) -> Self:
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def show(self, show: Show[E], event: E) -> None:
        """Show *event*, unless a signal has come."""
        self._is_showing = True
        try:
            if not self._is_ending:
                show(event)
        finally:
            self._is_showing = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._is_ending = True  # first: the next event may be about to be shown
        before = self._before.get(number)
        if self._is_showing and callable(before):
            before(number, frame)
        else:
            self._tell(_End(after_signal(number)))
