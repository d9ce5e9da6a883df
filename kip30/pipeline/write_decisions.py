"""Decides about a write, given the record at its key: pure, the same before and after a refusal."""

from kip30.driver.records import Condition, Entry, Version, Write
from kip30.errors import StoreError
from kip30.pipeline.admission import Decision
from kip30.pipeline.outcomes import WriteOutcome

Found = Entry | StoreError | None
"""The content of a key: a record, nothing, or an unreadable record."""


def decide(write: Write, found: Found) -> Decision | None:
    """Return the outcome of *write* while *found* is at its key; None if it may be sent."""
    if found is None:
        return _decide_without(write)
    if isinstance(found, StoreError):
        return None  # the store decides: an ANY replaces it, anything else is refused
    if found.nonce == write.nonce and found.data == write.data:
        return Decision(WriteOutcome.WRITTEN, found.version)
    if found.data == write.data:
        return Decision(WriteOutcome.SAME, found.version)
    return _decide_with_other(write, found.version)


def decide_refused(write: Write, found: Found) -> Decision | None:
    """Return the same of a write that the store refused; None if it may be sent once more."""
    if isinstance(found, StoreError):
        return Decision(
            WriteOutcome.CONFLICT, None, f"what is there is no record of kip30's: {found}"
        )
    return decide(write, found)


def _decide_without(write: Write) -> Decision | None:
    if write.data is None:
        return Decision(WriteOutcome.SAME, None, "the key is not there")
    if write.condition is Condition.ANY or write.condition is Condition.ABSENT:
        return None
    return Decision(WriteOutcome.CONFLICT, None, "the key is not there any more")


def _decide_with_other(write: Write, version: Version) -> Decision | None:
    condition = write.condition
    if condition is Condition.ANY or condition is Condition.PRESENT or condition == version:
        return None
    if isinstance(condition, Version):
        why = f"the key has version {version} with other data, not {condition}"
    else:
        why = f"the key is there with other data, at version {version}"
    return Decision(WriteOutcome.CONFLICT, version, why)
