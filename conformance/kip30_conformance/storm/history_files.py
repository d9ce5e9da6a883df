"""Histories in slices: the operations of each few seconds go to a file of their own."""

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.history.recorder import HistoryRecorder
from kip30_conformance.storm.call_log import CallTimer


class Slices(NamedTuple):
    """The time since *started*, on CLOCK_MONOTONIC, cut into slices of *seconds*."""

    started: float
    seconds: float

    def number(self) -> int:
        """Return the number of the present slice."""
        return int((time.monotonic() - self.started) / self.seconds)


class CountingRecorder(HistoryRecorder):
    """A recorder that counts operations by outcome."""

    def __init__(self, folder: Path, calls: CallTimer, kind: str) -> None:
        """Write a history to *folder*, and count its operations among *calls*."""
        super().__init__(folder)
        self._calls = calls
        self._kind = kind

    @override
    def end(self, number: int, **answer: Any) -> None:
        super().end(number, **answer)
        self._calls.count(self._kind, answer["outcome"])


class Rolling:
    """One recorder after the other, so that no process keeps its whole history in memory.

    For one thread.
    """

    def __init__(self, folder: Path, calls: CallTimer, kind: str, slices: Slices) -> None:
        """Make recorders of operations of *kind*."""
        self._make = partial(CountingRecorder, folder, calls, kind)
        self._slices = slices
        self._number = -1
        self._recorder: HistoryRecorder | None = None

    def recorder(self) -> tuple[int, HistoryRecorder]:
        """Return the number of the slice, and the recorder for an operation that starts now."""
        number = self._slices.number()
        if self._recorder is None or number != self._number:
            self.close()
            self._number, self._recorder = number, self._make()
        return self._number, self._recorder

    def close(self) -> None:
        """Close the last one."""
        if self._recorder is not None:
            self._recorder.close()
