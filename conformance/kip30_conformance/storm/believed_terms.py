"""From when until when a process certainly believed that it led, also if it is killed then."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from kip30 import ClosedError, LeaderElection, Leadership
from kip30_conformance.storm.names import client_of

_PAUSE_SECONDS = 0.01
_WIDTH = 120


class Validity:
    """Checks repeatedly whether the term of one candidate is valid.

    Every term has a file of its own, in which one line is written over and over: epoch, and the
    first and the last moment of CLOCK_MONOTONIC at which it certainly was valid.
    """

    def __init__(self, folder: Path, process: str, election: LeaderElection[str]) -> None:
        """Watch over the candidate that is named like its *process*."""
        self._folder = folder
        self._process = process
        self._election = election
        self.term: Leadership | None = None

    def watch(self, stop: threading.Event) -> None:
        """Check until *stop*."""
        while not stop.wait(_PAUSE_SECONDS):
            with suppress(ClosedError):
                self.term = self._election.leadership(client_of(self._process)) or self.term
            if self.term is not None and self.term.is_valid():
                self._follow(self.term, stop)

    def _follow(self, term: Leadership, stop: threading.Event) -> None:
        path = self._folder / f"{self._process}-{term.epoch}-{time.monotonic_ns()}"
        first = before = time.monotonic()
        with path.open("wb", buffering=0) as file:
            while term.is_valid() and not stop.is_set():
                # Read before the check, and validity never returns: so it held until then.
                overwrite(file.fileno(), f"{term.epoch} {first!r} {before!r}")
                stop.wait(_PAUSE_SECONDS)
                before = time.monotonic()


def read_terms(folder: Path) -> list[tuple[int, float, float, str]]:
    """Return epoch, first and last moment, and process of every term left in *folder*."""
    terms: list[tuple[int, float, float, str]] = []
    for path in folder.iterdir():
        words = path.read_text().split()
        if len(words) == 3:
            terms.append((int(words[0]), float(words[1]), float(words[2]), path.name.split("-")[0]))
    return sorted(terms)


def overwrite(descriptor: int, line: str, number: int = 0) -> None:
    """Replace the line of this *number* in a file whose lines are equally long."""
    os.pwrite(descriptor, f"{line:<{_WIDTH}}\n".encode(), number * (_WIDTH + 1))
