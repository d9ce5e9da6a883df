"""The connections to one server: those in use, and some that are kept for the next request."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kip30_backends.consul.errors import CUT_OFF, HUNG_UP, UNSENT, Failure, TroubleError
from kip30_backends.consul.wire import Answer, Wire

_MOST_KEPT = 16
_KEPT_SECONDS = 2.0


class Idle(NamedTuple):
    """A connection that nobody uses, and since when."""

    since: float
    wire: Wire


class Connections:
    """Lends connections out, one to a request. Thread-safe.

    The one that was used last is lent first. So those that many requests at once have left behind
    stay unused, and are dropped after a while.
    """

    def __init__(self, connect: Callable[[float], Wire]) -> None:
        """Have *connect* make them, each by a deadline."""
        self._connect = connect
        self._idle: deque[Idle] = deque()
        self._open: set[Wire] = set()
        self._keeping = True
        self._closed = False
        self._lock = threading.Lock()

    def send(self, request: bytes, until: float) -> Answer:
        """Return the answer to a request, over a connection that is free or a new one.

        Raises:
            TroubleError: There is none by *until*.
        """
        wire = self._free() or self.dial(until)
        try:
            return self.converse(wire, request, until)
        finally:
            self._done_with(wire)

    def converse(self, wire: Wire, request: bytes, until: float) -> Answer:
        """Return the answer to a request over *wire*.

        Raises:
            TroubleError: There is none by *until*.
        """
        try:
            return wire.ask(request, until)
        except TroubleError as error:
            if self._closed:
                raise _closed(sent=error.failure.status != UNSENT) from error
            raise

    def dial(self, until: float) -> Wire:
        """Return a new connection, to be given back by `drop`.

        Raises:
            TroubleError: There is none by *until*.
        """
        self._check()
        wire = self._connect(until)
        with self._lock:
            self._open.add(wire)
            closed = self._closed
        if closed:
            self.drop(wire)
            raise _closed()
        return wire

    def drop(self, wire: Wire) -> None:
        """Let *wire* go."""
        with self._lock:
            self._open.discard(wire)
        wire.close()

    def rest(self) -> None:
        """Keep none that is not in use, until `resume`; requests can be sent all the same."""
        with self._lock:
            self._keeping = False
            idle = [one.wire for one in self._idle]
            self._idle.clear()
        for wire in idle:
            self.drop(wire)

    def resume(self) -> None:
        """Keep some for the next requests."""
        with self._lock:
            self._keeping = True

    def close(self) -> None:
        """End all requests, let all connections go, and open no other ones."""
        with self._lock:
            self._closed = True
            idle, wires = [one.wire for one in self._idle], list(self._open)
            self._idle.clear()
        for wire in wires:
            wire.hang_up()
        for wire in idle:
            self.drop(wire)

    def abandon(self) -> None:
        """In a forked child: let go of all connections, which stay open for the parent.

        Were they kept, the server would not see them end while the child lives.
        """
        self._lock = threading.Lock()
        self._closed = True
        self._idle.clear()
        inherited, self._open = self._open, set()
        for wire in inherited:
            wire.close()

    def _check(self) -> None:
        if self._closed:
            raise _closed()

    def _free(self) -> Wire | None:
        while (wire := self._last_used()) is not None:
            if wire.is_idle():
                return wire
            self.drop(wire)
        return None

    def _last_used(self) -> Wire | None:
        with self._lock:
            return self._idle.pop().wire if self._idle else None

    def _done_with(self, wire: Wire) -> None:
        with self._lock:
            now = time.monotonic()
            wanted = self._keeping and not self._closed
            kept = wire.reusable and wanted and len(self._idle) < _MOST_KEPT
            surplus = [] if kept else [wire]
            while self._idle and self._idle[0].since < now - _KEPT_SECONDS:
                surplus.append(self._idle.popleft().wire)
            if kept:
                self._idle.append(Idle(now, wire))
        for one in surplus:
            self.drop(one)


def _closed(*, sent: bool = False) -> TroubleError:
    return TroubleError(Failure(CUT_OFF if sent else HUNG_UP, "closed"))
