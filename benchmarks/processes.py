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


class ChildEndedError(Exception):
    """A process ended before it had done its part; the message is its last error."""


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
        self.pid: int = self._process.pid

    def line(self, patience_seconds: float = _PATIENCE_SECONDS) -> Line:
        """Return the next line of the standard output.

        Raises `queue.Empty` if none comes, and `ChildEndedError` if none will.
        """
        line = self.out.get(timeout=patience_seconds)
        if line is None:
            raise ChildEndedError(self._last_error())
        return line

    def error_line(self) -> Line:
        """Return the next line of the standard error, as `line` does."""
        line = self.err.get(timeout=_PATIENCE_SECONDS)
        if line is None:
            raise ChildEndedError("it printed nothing more")
        return line

    def expect(self, word: str, patience_seconds: float = _PATIENCE_SECONDS) -> list[str]:
        """Return the words of the next line that begins with *word*."""
        while (words := self.line(patience_seconds).text.split())[0] != word:
            pass
        return words

    def send(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def kill(self) -> int:
        """Kill with SIGKILL and return the moment just before, in nanoseconds."""
        moment = time.monotonic_ns()
        self._process.kill()
        return moment

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _last_error(self) -> str:
        said = [line.text for line in iter(self.err.get, None)]
        return said[-1] if said else "it printed nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def started(module: str, *arguments: object) -> Child:
    """Start the program *module* in another process."""
    return Child([sys.executable, "-m", module, *map(str, arguments)])


def print_line(*words: object) -> None:
    """Write a line to the standard output, for the process that has started this one."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # one write, for threads may meet here
    sys.stdout.flush()


def _lines(stream: IO[str] | None) -> Queue[Line | None]:
    """Return the lines of *stream* as they come, and None at its end."""
    assert stream is not None
    lines: Queue[Line | None] = Queue()

    def read() -> None:
        with stream:
            for text in stream:
                lines.put(Line(time.monotonic_ns(), text.rstrip("\n")))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines
