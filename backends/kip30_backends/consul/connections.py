"""The connections to one server: those in use, and some that are kept for the next request."""

import threading
from collections import deque
from collections.abc import Callable

from kip30_backends.consul.errors import HUNG_UP, Failure, TroubleError
from kip30_backends.consul.wire import Answer, Wire

_MOST_KEPT = 16


class Connections:
    """Lends connections out, one to a request. Thread-safe."""

    def __init__(self, connect: Callable[[float], Wire]) -> None:
        """Have *connect* make them, each by a deadline."""
        self._connect = connect
        self._idle: deque[Wire] = deque()
        self._open: set[Wire] = set()
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
                raise TroubleError(Failure(HUNG_UP, "closed")) from error
            raise

    def dial(self, until: float) -> Wire:
        """Return a new connection, to be given back by `drop`.

        Raises:
            TroubleError: There is none by *until*.
        """
        wire = self._connect(until)
        with self._lock:
            self._open.add(wire)
            closed = self._closed
        if closed:
            self.drop(wire)
            raise TroubleError(Failure(HUNG_UP, "closed"))
        return wire

    def drop(self, wire: Wire) -> None:
        """Let *wire* go."""
        with self._lock:
            self._open.discard(wire)
        wire.close()

    def close(self) -> None:
        """End all requests, let all connections go, and open no other ones."""
        with self._lock:
            self._closed = True
            idle, wires = list(self._idle), list(self._open)
            self._idle.clear()
        for wire in wires:
            wire.hang_up()
        for wire in idle:
            self.drop(wire)

    def abandon(self) -> None:
        """In a forked child: touch no connection any more, and open no other ones."""
        self._lock = threading.Lock()
        self._closed = True
        self._idle.clear()
        self._open.clear()

    def _free(self) -> Wire | None:
        while True:
            try:
                wire = self._idle.pop()
            except IndexError:
                return None
            if wire.is_idle():
                return wire
            self.drop(wire)

    def _done_with(self, wire: Wire) -> None:
        with self._lock:
            kept = wire.reusable and not self._closed and len(self._idle) < _MOST_KEPT
            if kept:
                self._idle.append(wire)
        if not kept:
            self.drop(wire)
