"""Connections to the server: one for each request under way, kept for the next one."""

import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from kip30.config import Address
from kip30.driver.kit import fork_safety
from kip30.driver.kit.gate import CLOSED
from kip30.errors import ClosedError
from linestore.errors import lost, refused, unsent

MOST_IDLE = 8
"""Most idle connections that are kept, even after a thousand threads asked at a time."""
_LEAST_SECONDS = 0.001
_CHUNK = 64 * 1024


class Connection:
    """One connection, which one thread uses at a time."""

    def __init__(self, address: Address, until: float) -> None:
        self._socket = socket.create_connection((address.host, address.port), _left(until))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def is_idle(self) -> bool:
        """Return whether it is open still, and no late answer waits in it."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._read
        except OSError:
            return False
        return False

    def ask(self, request: dict[str, Any], until: float) -> dict[str, Any]:
        """Return what the server answers by *until*; raises OSError or ValueError."""
        self._socket.settimeout(_left(until))
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._read[-_CHUNK:]:
            self._socket.settimeout(_left(until))
            received = self._socket.recv(_CHUNK)
            if not received:
                raise ConnectionResetError("the server hung up")
            self._read += received
        line, _, self._read = self._read.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def hang_up(self) -> None:
        """End what another thread does with it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give it up, without a word to the server if a forked child does so."""
        self._socket.close()


class Connections:
    """The way to the server. Thread-safe."""

    def __init__(self, address: Address) -> None:
        self.server = str(address)
        self._address = address
        # All of these are written under the lock.
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False
        self._lock = threading.Lock()
        fork_safety.register(self)

    def ask(
        self, operation: str, until: float, *, writes: bool = False, **fields: Any
    ) -> dict[str, Any]:
        """Return the answer to one request, which is sent once.

        Raises:
            DefiniteError: Nothing was done.
            OutcomeUnknownError: It *writes*, and no answer came.
        """
        connection = self._connected(until)
        try:
            answer = connection.ask({"op": operation, **fields}, until)
        except (OSError, ValueError) as error:
            self._drop(connection)
            raise lost(error, self.server, writes=writes, closed=self._closed) from error
        except BaseException:
            self._drop(connection)
            raise
        self._keep(connection)
        if "error" in answer:
            raise refused(answer["error"], writes=writes)
        return answer

    def close(self) -> None:
        """End all requests and connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            connection.hang_up()

    def abandon(self) -> None:
        """In a forked child: close its copies, which the parent does not notice."""
        for connection in [*self._idle, *self._busy]:
            connection.close()

    def _connected(self, until: float) -> Connection:
        with self._lock:
            if self._closed:
                raise ClosedError(CLOSED)
            while self._idle:
                connection = self._idle.pop()
                if connection.is_idle():
                    self._busy.add(connection)
                    return connection
                connection.close()
        try:
            connection = Connection(self._address, until)
        except OSError as error:
            raise unsent(error, self.server) from error
        if self._adopts(connection):
            return connection
        connection.close()
        raise ClosedError(CLOSED)

    def _adopts(self, connection: Connection) -> bool:
        """Record that *connection* is in use, unless this was closed meanwhile."""
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
            return not self._closed

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _drop(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()


def _left(until: float) -> float:
    return max(_LEAST_SECONDS, until - time.monotonic())
