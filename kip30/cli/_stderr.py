"""Lines on standard error; through a queue where their writer must not be blocked."""

import io
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import click

_MOST_LINES = 1000
_CLOSE_SECONDS = 1.0


class LineQueue:
    """Lines that a thread writes to a descriptor, in order. Adding one never blocks. Thread-safe.

    A write to a pipe or terminal whose reader does not read blocks, even when a signal arrives.
    When the queue is full, lines are dropped; a line before the next one gives their number.
    """

    def __init__(self, descriptor: int, encoding: str) -> None:
        """Write to *descriptor*, which stays the caller's."""
        self._descriptor = descriptor
        self._encoding = encoding
        # None ends the writer.
        self._lines = SimpleQueue[str | None]()
        # A finalizer that logs may come in the middle of a call.
        self._lock = threading.RLock()
        # How many lines were dropped since the last one that was queued; under the lock.
        self._dropped = 0
        self._writer = self._new_writer()

    def put(self, line: str) -> None:
        """Queue *line*, or drop it if the queue is full."""
        with self._lock:
            if self._lines.qsize() >= _MOST_LINES:
                self._dropped += 1
                return
            self._report_dropped()
            self._lines.put(line)
            self._start_writer()

    def close(self) -> None:
        """Wait until all lines are written, for a second at most; the others are lost."""
        with self._lock:
            self._report_dropped()
            # First: the writer may have ended a moment after it has the order to end.
            has_writer = self._writer.is_alive()
            self._lines.put(None)
        if has_writer:
            self._writer.join(_CLOSE_SECONDS)
        else:
            self._write_all()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._lines.put(f"kip30: lines that were dropped here: {self._dropped}")
        self._dropped = 0

    def _start_writer(self) -> None:
        # A forked child has no writer until it needs one. If the system refuses a thread, the lines
        # wait; nothing is logged, because the log is written by this queue.
        if not self._writer.is_alive():
            self._writer = self._new_writer()
            with suppress(RuntimeError):
                self._writer.start()

    def _new_writer(self) -> threading.Thread:
        return threading.Thread(target=self._write_all, name="kip30-stderr", daemon=True)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(f"{line}\n".encode(self._encoding, "backslashreplace"))

    def _write(self, data: bytes) -> None:
        # Not by `sys.stderr`: the interpreter cannot end while a thread is blocked within it.
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


_queues: list[LineQueue] = []
"""The queue that takes the lines, if there is one."""


def to_stderr(line: str) -> None:
    """Write *line* to standard error, or queue it; a closed standard error is ignored."""
    if _queues:
        _queues[-1].put(line)
        return
    try:
        click.echo(line, err=True)
    except OSError:
        # The rest of its buffer would fail again at exit, and change the exit code. The descriptor
        # stays as it is, because the command of `run` inherits it.
        sys.stderr = io.StringIO()


def queue_stderr() -> None:
    """Queue the lines of the present command from now on, to the report of its error.

    For a command that holds a lease and handles signals itself: it could neither renew nor release
    while it is blocked.
    """
    click.get_current_context().find_root().with_resource(_queued())


@contextmanager
def _queued() -> Generator[None]:
    stream = sys.stderr
    try:
        queue = LineQueue(stream.fileno(), stream.encoding)
    except OSError:  # it is in memory, where nothing blocks
        yield
        return
    _queues.append(queue)
    try:
        yield
    finally:
        _queues.remove(queue)
        queue.close()
