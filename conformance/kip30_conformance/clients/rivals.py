"""Detects whether two candidates ever believe at the same moment that they lead."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from kip30 import LeaderElection, Leadership

_PAUSE_SECONDS = 0.002


class Rivals:
    """Checks the terms of candidates of this process, all the time, by their own clocks.

    Attributes:
        terms: All that were seen to be valid, in the order in which they were first seen.
        overlaps: Terms that were valid at one moment: there must be none.
    """

    def __init__(self, elections: Mapping[str, LeaderElection[str]]) -> None:
        """Prepare to watch candidates, given with the elections they were nominated in."""
        self.terms: list[Leadership] = []
        self.overlaps: list[tuple[Leadership, ...]] = []
        self._elections = elections
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, "rivals")

    def leading(self) -> list[Leadership]:
        """Return the terms that are valid now; of several, each was while the others were."""
        held = [
            term
            for name, election in self._elections.items()
            if (term := election.leadership(name)) is not None and term.is_valid()
        ]
        # Validity never returns: a term that is still valid was so while the later ones were
        # checked.
        return [term for term in held if term.is_valid()]

    def check(self) -> None:
        """Require that no terms overlapped, and that each had a greater epoch than the last."""
        assert self.overlaps == []
        epochs = [term.epoch for term in self.terms]
        assert epochs == sorted(set(epochs))

    def __enter__(self) -> Self:
        """Start."""
        self._watching = self._pool.submit(self._watch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and raise any unexpected error of the checks."""
        self._stopping.set()
        self._pool.shutdown()
        self._watching.result()

    def _watch(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            leading = self.leading()
            self.terms += [term for term in leading if term not in self.terms]
            if len(leading) > 1:
                self.overlaps.append(tuple(leading))
