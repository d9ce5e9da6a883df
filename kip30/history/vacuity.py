"""Evidence in a history: an empty one is linearizable, and proves nothing."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kip30.history.models import Model
from kip30.history.operations import Operation


def missing_evidence(
    rows: Sequence[Operation], model: Model, *, faults: int | None = None
) -> tuple[str, ...]:
    """Return why *rows* prove nothing, in words; empty if they do prove something.

    Args:
        rows: A whole history.
        model: The model of each key.
        faults: How many faults were seen to bite; None if none were meant to.
    """
    reasons = {
        "no write was acknowledged": not _wrote(rows, model),
        "no two operations on a key overlapped": not _overlapped(rows),
        "no fault was seen to bite": faults == 0,
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def _wrote(rows: Sequence[Operation], model: Model) -> bool:
    return any(row.acknowledged and not step.observes for row, step in model.with_steps(rows))


def _overlapped(rows: Iterable[Operation]) -> bool:
    intervals: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        intervals[row.key].append((row.called_ns, row.ends_ns))
    return any(_touch(sorted(ones)) for ones in intervals.values())


def _touch(intervals: Sequence[tuple[int, float]]) -> bool:
    """Return whether any of the sorted *intervals* begins no later than the previous one ends."""
    return any(called <= over for (_, over), (called, _) in pairwise(intervals))
