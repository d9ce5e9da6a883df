"""The known terms of leaders, which show whether a fence may have refused a write.

A refusal with `FencedError` claims that at some moment of the call its epoch was not in force:
a newer one existed, or the leadership had ended. Without any record of terms that cannot be judged.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from kip30.driver.records import Fence
from kip30.history.operations import Operation


class Term(NamedTuple):
    """A time during which an epoch was certainly in force.

    Attributes:
        service: The service that was led.
        epoch: Its epoch.
        begun_ns: A moment after the leader learned that it was elected.
        held_ns: A moment at which it was still valid, by its own clock, and not resigned.
    """

    service: str
    epoch: int
    begun_ns: int
    held_ns: int


class Terms:
    """The known terms of all services."""

    def __init__(self, terms: Iterable[Term] = ()) -> None:
        """Index *terms*; there may be others."""
        self._held: defaultdict[Fence, list[Term]] = defaultdict(list)
        self._epochs: defaultdict[str, list[Term]] = defaultdict(list)
        for term in terms:
            self._held[Fence(term.service, term.epoch)].append(term)
            self._epochs[term.service].append(term)

    def was_in_force(self, row: Operation) -> bool:
        """Return whether the fence of *row* was certainly in force from its call to its return."""
        held = () if row.fence is None else self._held.get(row.fence, ())
        return any(one.begun_ns <= row.called_ns and row.ends_ns <= one.held_ns for one in held)

    def was_outdated(self, row: Operation) -> bool:
        """Return whether a newer epoch than that of its fence existed when *row* was called."""
        if row.fence is None:
            return False
        known = self._epochs.get(row.fence.service, ())
        return any(row.fence.epoch < one.epoch and one.begun_ns < row.called_ns for one in known)
