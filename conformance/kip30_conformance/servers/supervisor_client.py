"""A supervisor as its owner sees it: a child process that answers."""

import json
import os
import subprocess
import sys
import threading
from typing import Any

from kip30_conformance.polling import is_readable, time_scale

_ANSWER_SECONDS = 30.0


class SupervisorError(AssertionError):
    """The supervisor failed to do a request, or is dead."""


class SupervisorClient:
    """Starts a supervisor and talks to it. Thread-safe; of no use in a forked child."""

    def __init__(self) -> None:
        """Start it."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kip30_conformance.servers.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def is_ours(self) -> bool:
        """Return whether this process started the supervisor, and it still runs."""
        return self._pid == os.getpid() and self._process.poll() is None

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Ask the supervisor to perform *verb*, and return its answer.

        Raises:
            SupervisorError: It could not, or did not answer.
        """
        if not self.is_ours:
            raise SupervisorError(f"supervisor {self.pid} is gone, or another process's")
        with self._lock:
            self._send({"verb": verb, **arguments})
            answer = json.loads(self._line())
        if "error" in answer:
            raise SupervisorError(f"{verb}: {answer['error']}: {answer['text']}")
        return answer["result"]

    def end(self) -> None:
        """Let it kill all servers, and wait until it has ended. Idempotent."""
        with self._lock:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.wait(_ANSWER_SECONDS * time_scale())

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        while b"\n" not in self._unread:
            if not is_readable(stdout.fileno(), _ANSWER_SECONDS * time_scale()):
                raise SupervisorError(f"supervisor {self.pid} does not answer")
            chunk = os.read(stdout.fileno(), 65_536)
            if not chunk:
                raise SupervisorError(f"supervisor {self.pid} ended with {self._process.wait()}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line
