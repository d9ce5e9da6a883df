"""Decides about a write, given the record at its key: pure, the same before and after a refusal."""

from collections.abc import Callable

from kip30.driver.records import Condition, Entry, Version, Write
from kip30.errors import StoreError
from kip30.pipeline.write.change_selection import Decision
from kip30.pipeline.write.outcomes import WriteOutcome, is_of_pipeline

Found = Entry | StoreError | None
"""The content of a key: a record, nothing, or an unreadable record."""


Rule = Callable[[Write, Found], Decision | Write]
"""Returns the outcome of a write while something is at its key, or the write that may be sent."""


def decide(write: Write, found: Found) -> Decision | Write:
    """Return the outcome of *write* while *found* is at its key, or *write* if it may be sent."""
    if isinstance(found, StoreError):
        return write  # the store decides: an ANY replaces it, anything else is refused
    if found is None:
        return _decide_without(write)
    return _decide_equal(write, found) or _decide_with_other(write, found.version)


def decide_refused(write: Write, found: Found) -> Decision | Write:
    """Return the same of a write that the store refused, or it may be sent once more."""
    if isinstance(found, StoreError):
        return _foreign(found)
    return decide(write, found)


def decide_pipeline_replacement(write: Write, found: Found) -> Decision | Write:
    """Return the outcome of *write*, which replaces or deletes only what the pipeline wrote.

    It is sent with the version that was found, so that no program can write in between.
    """
    if isinstance(found, StoreError):
        return _foreign(found)
    if found is None:
        return _decide_without(write._replace(condition=Condition.ABSENT))
    if equal := _decide_equal(write, found):
        return equal
    if is_of_pipeline(found.nonce):
        return write._replace(condition=found.version)
    why = f"a program wrote the existing record, at version {found.version}"
    return Decision(WriteOutcome.CONFLICT, found.version, why)


def _foreign(error: StoreError) -> Decision:
    why = f"the key has a record that kip30 cannot read: {error}"
    return Decision(WriteOutcome.CONFLICT, None, why)


def _decide_equal(write: Write, found: Entry) -> Decision | None:
    if found.data != write.data:
        return None
    is_own = found.nonce == write.nonce
    return Decision(WriteOutcome.WRITTEN if is_own else WriteOutcome.SAME, found.version)


def _decide_without(write: Write) -> Decision | Write:
    if write.data is None:
        return Decision(WriteOutcome.SAME, None, "the key is not there")
    if write.condition is Condition.ANY or write.condition is Condition.ABSENT:
        return write
    return Decision(WriteOutcome.CONFLICT, None, "the key no longer exists")


def _decide_with_other(write: Write, version: Version) -> Decision | Write:
    condition = write.condition
    if condition is Condition.ANY or condition is Condition.PRESENT or condition == version:
        return write
    if isinstance(condition, Version):
        why = f"the key has version {version} with other data, not {condition}"
    else:
        why = f"the key is there with other data, at version {version}"
    return Decision(WriteOutcome.CONFLICT, version, why)
