"""The display while the suite runs: a line for each check, or a bar on a terminal."""

import os
from abc import ABC, abstractmethod
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typing_extensions import override

from kip30_conformance.report.results import Check, CheckOutcome


class Display(ABC):
    """Shows the progress of a run."""

    @abstractmethod
    def begin(self, total: int) -> None:
        """Show that *total* checks are going to run."""

    @abstractmethod
    def show(self, check: Check) -> None:
        """Show how *check* ended."""

    @abstractmethod
    def end(self) -> None:
        """Stop showing."""


class Lines(Display):
    """A line for each check."""

    def __init__(self, stream: TextIO) -> None:
        """Write to *stream*."""
        self._stream = stream
        self._total = self._done = self._failed = 0

    @override
    def begin(self, total: int) -> None:
        self._total = total

    @override
    def show(self, check: Check) -> None:
        self._done += 1
        self._failed += check.outcome is CheckOutcome.FAILED
        so_far = f"{self._done}/{self._total}{_failures(self._failed)}"
        print(f"[{so_far}] {_line(check)}", file=self._stream, flush=True)

    @override
    def end(self) -> None:
        pass


class Bar(Display):
    """A bar, and above it a line for each check that did not pass."""

    def __init__(self, stream: TextIO) -> None:
        """Draw on the terminal behind *stream*, even while pytest captures its output."""
        self._terminal = os.fdopen(os.dup(stream.fileno()), "w")
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=self._terminal),
        )
        self._task = self._progress.add_task("")
        self._failed = 0

    @override
    def begin(self, total: int) -> None:
        self._progress.update(self._task, total=total)
        self._progress.start()

    @override
    def show(self, check: Check) -> None:
        self._failed += check.outcome is CheckOutcome.FAILED
        text = f"{check.case}{_failures(self._failed)}"
        self._progress.update(self._task, advance=1, description=text)
        if check.outcome is not CheckOutcome.PASSED:
            self._progress.console.print(_line(check), markup=False, highlight=False)

    @override
    def end(self) -> None:
        self._progress.stop()
        self._terminal.close()


def display_on(stream: TextIO) -> Display:
    """Return a bar if *stream* is a terminal, else lines."""
    return Bar(stream) if stream.isatty() else Lines(stream)


def _failures(number: int) -> str:
    return f", {number} failed" if number else ""


def _line(check: Check) -> str:
    why = check.detail.strip().splitlines()
    because = f": {why[-1]}" if why and check.outcome is not CheckOutcome.PASSED else ""
    name = f"{check.suite}.{check.name}"
    note = f"; {check.note}" if check.note else ""
    return f"{check.outcome.value:<11} {check.case} {name} ({check.seconds:.2f} s){because}{note}"
