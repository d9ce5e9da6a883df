"""Decides before any I/O which records a target takes, and which of several for one key.

A key that is given several times in one call is written once, so that no race decides. Of records
to be created the one with the smallest source and data counts, because a task that is repeated may
bring them in another order; of changes the last one counts. The others are judged by it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kip30.driver.records import Condition, Version
from kip30.errors import InvalidNameError
from kip30.names import Key, parse_key
from kip30.pipeline.write.outcomes import Given, WriteOutcome

_HELD = {WriteOutcome.WRITTEN, WriteOutcome.SAME}
_LATER = "a later change of this key in the same call counts"
_OTHER = "the same call has other data for this key"


class Decision(NamedTuple):
    """An outcome, the version of the record there as far as it is known, and why."""

    outcome: WriteOutcome
    version: Version | None = None
    detail: str = ""


Prefers = Callable[[Given, Given], bool]
"""Says if the second of two changes of one key, in the order given, counts instead of the first."""


def prefers_last(_before: Given, _after: Given) -> bool:
    """Choose by the order of the changes."""
    return True


def prefers_smallest(before: Given, after: Given) -> bool:
    """Choose by what the records hold, in any order of them."""
    return (after.source, after.data or b"") < (before.source, before.data or b"")


class SelectedChanges(NamedTuple):
    """The numbers of the changes to write, by key, and the outcomes of others.

    Attributes:
        chosen: The number of the change that counts for each key.
        rejected: What the target does not take, by number.
        repeated: The key of each other change, by number.
    """

    chosen: dict[Key, int]
    rejected: dict[int, Decision]
    repeated: dict[int, Key]


def select_changes(changes: Sequence[Given], limit: int, prefers: Prefers) -> SelectedChanges:
    """Sort out *changes* for a target that takes data of *limit* bytes."""
    chosen: dict[Key, int] = {}
    rejected: dict[int, Decision] = {}
    repeated: dict[int, Key] = {}
    for number, change in enumerate(changes):
        data = change.data
        try:
            key = parse_key(change.key)
        except InvalidNameError as error:
            rejected[number] = Decision(WriteOutcome.REJECTED, None, str(error))
            continue
        if data is not None and len(data) > limit:
            why = f"data has {len(data)} bytes: {limit} is the limit"
            rejected[number] = Decision(WriteOutcome.REJECTED, None, why)
            continue
        before = chosen.setdefault(key, number)
        if before != number:
            takes_over = prefers(changes[before], change)
            chosen[key] = number if takes_over else before
            repeated[before if takes_over else number] = key
    return SelectedChanges(chosen, rejected, repeated)


def judge_repeated(change: Given, chosen: Given, decision: Decision) -> Decision:
    """Return the outcome of *change*, given that of the *chosen* one of its key."""
    outcome, version, _ = decision
    if outcome in _HELD and (change.data == chosen.data or change.expected is Condition.ANY):
        return Decision(WriteOutcome.SAME, version, _LATER if change.data != chosen.data else "")
    if outcome in _HELD or outcome is WriteOutcome.CONFLICT:
        return Decision(WriteOutcome.CONFLICT, version, _OTHER)
    return decision
