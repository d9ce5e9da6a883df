"""A client in a process of its own, driven over its standard input and output.

Requests and answers are JSON lines; see `kip30_conformance.clients.peer_main` for the verbs.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kip30 import OutcomeUnknownError, UnavailableError
from kip30.config import Written
from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import is_readable, time_scale

_ANSWER_SECONDS = 30.0
_UNSETTLED = {UnavailableError.__name__, OutcomeUnknownError.__name__}


class PeerError(AssertionError):
    """The peer raised; ``kind`` is the name of its error's class."""

    def __init__(self, kind: str, text: str) -> None:
        """Keep the error of the peer."""
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def settled(ask: Callable[[], object]) -> str:
    """Return the kind of the error in a peer's answer to *ask*, ``done`` if it has none.

    A peer whose request to the store failed in time, as on a busy machine, proves nothing: "".
    """
    try:
        ask()
    except PeerError as error:
        return "" if error.kind in _UNSETTLED else error.kind
    return "done"


class Peer:
    """A child process that is a client of the store."""

    def __init__(self, properties: Mapping[str, Written]) -> None:
        """Start it and wait until its locator is open."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kip30_conformance.clients.peer_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._unread = b""
        self._stop = ProcessStop(properties)
        try:
            self.call("startup", properties={key: str(value) for key, value in properties.items()})
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def call(self, verb: str, **arguments: Any) -> Any:
        """Let the peer do *verb* and return its answer.

        Raises:
            PeerError: The peer's call raised, or the peer did not answer.
        """
        self.send(verb, **arguments)
        return self.receive()

    def send(self, verb: str, **arguments: Any) -> None:
        """Send the request without waiting for the answer; `receive` must follow, once for each."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Wait for the answer to the oldest request that was sent."""
        line = self._line()
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"], answer["text"])
        return answer["result"]

    def _line(self) -> bytes:
        """Read one line; later bytes are kept for the next."""
        stdout = self._process.stdout
        assert stdout is not None
        while b"\n" not in self._unread:
            if not is_readable(stdout.fileno(), _ANSWER_SECONDS * max(1.0, time_scale())):
                raise PeerError("NoAnswer", f"peer {self.pid} does not answer")
            chunk = os.read(stdout.fileno(), 65536)
            if not chunk:
                raise PeerError("Dead", f"peer {self.pid} ended with {self._process.wait()}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def stop(self) -> None:
        """Stop the process (SIGSTOP), not in a write that locks the store for all."""
        self._stop.stop(self.pid)

    def resume(self) -> None:
        """Continue a stopped process."""
        os.kill(self.pid, signal.SIGCONT)

    def has_stopped(self) -> bool:
        """Return whether the process was stopped, by itself, since the last call of this."""
        return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def ended_by(self, number: int) -> int:
        """Send a signal, wait until the process has ended, and return its exit status."""
        self._process.send_signal(number)
        return self._process.wait(_ANSWER_SECONDS * max(1.0, time_scale()))

    def kill(self) -> None:
        """Kill the process with -9 and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End the process; nothing happens if it is gone."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                self.resume()
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
