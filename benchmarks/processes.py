"""Other processes: started, listened to line by line with the time of arrival, and ended."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from queue import Queue
from typing import IO, NamedTuple, Self

_PATIENCE_SECONDS = 60.0


class Line(NamedTuple):
    arrived: int
    text: str


class Child:
    """A running process. Leaving the ``with`` block kills it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.out = _lines(self._process.stdout)
        self.err = _lines(self._process.stderr)

    def line(self) -> Line:
        """Return the next line of the standard output; raises `queue.Empty` if none comes."""
        return self.out.get(timeout=_PATIENCE_SECONDS)

    def complaint(self) -> Line:
        """Return the next line of the standard error; raises `queue.Empty` if none comes."""
        return self.err.get(timeout=_PATIENCE_SECONDS)

    def kill(self) -> int:
        """Kill with SIGKILL and return the moment just before, in nanoseconds."""
        moment = time.monotonic_ns()
        self._process.kill()
        return moment

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def role(name: str, *arguments: object) -> Child:
    """Start the role *name* of `benchmarks.roles` in another process."""
    return Child([sys.executable, "-m", "benchmarks.roles", name, *map(str, arguments)])


def _lines(stream: IO[str] | None) -> Queue[Line]:
    assert stream is not None
    lines: Queue[Line] = Queue()

    def read() -> None:
        for text in stream:
            lines.put(Line(time.monotonic_ns(), text.rstrip("\n")))

    threading.Thread(target=read, daemon=True).start()
    return lines
