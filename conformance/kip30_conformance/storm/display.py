"""The display during a storm: a bar on a terminal, otherwise a line every few seconds."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from typing_extensions import override

_LINE_SECONDS = 10.0


class Display(ABC):
    """Shows the present step, its remaining time, and the outcomes of the calls so far."""

    @abstractmethod
    def begin(self, seconds: float) -> None:
        """The step takes about *seconds* from now."""

    @abstractmethod
    def show(self, doing: str, counted: Counter[str]) -> None:
        """Show the present step."""

    @abstractmethod
    def end(self) -> None:
        """Stop showing."""


class Lines(Display):
    """A line for every new step, and every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        """Write to *stream*."""
        self._stream = stream
        self._doing = ""
        self._next = self._ends = 0.0

    @override
    def begin(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @override
    def show(self, doing: str, counted: Counter[str]) -> None:
        now = time.monotonic()
        if doing == self._doing and now < self._next:
            return
        self._doing, self._next = doing, now + _LINE_SECONDS
        left = max(0.0, self._ends - now)
        print(f"[{left:5.0f} s left] {doing}; {_words(counted)}", file=self._stream, flush=True)

    @override
    def end(self) -> None:
        pass


class Bar(Display):
    """A bar with the same content."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on the terminal behind *stream*."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._task = self._progress.add_task("", total=None)
        self._began = 0.0
        self._progress.start()

    @override
    def begin(self, seconds: float) -> None:
        self._began = time.monotonic()
        self._progress.update(self._task, total=seconds)

    @override
    def show(self, doing: str, counted: Counter[str]) -> None:
        passed = time.monotonic() - self._began if self._began else 0.0
        text = f"{doing}; {_words(counted)}"
        self._progress.update(self._task, completed=passed, description=text)

    @override
    def end(self) -> None:
        self._progress.stop()


def display_on(stream: TextIO) -> Display:
    """Return a bar if *stream* is a terminal, else lines."""
    return Bar(stream) if stream.isatty() else Lines(stream)


def _words(counted: Counter[str]) -> str:
    return f"{counted['ok']} done, {counted['fail']} refused, {counted['unknown']} unknown"
