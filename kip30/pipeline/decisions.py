"""What becomes of a write, given what is at its key: pure, the same before and after a refusal."""

from kip30.driver.records import Condition, Entry, Version, Write
from kip30.errors import StoreError
from kip30.pipeline.admission import Decision
from kip30.pipeline.outcomes import Outcome

Found = Entry | StoreError | None
"""What is at a key: a record, nothing, or what cannot be read as a record."""


def decide(write: Write, found: Found) -> Decision | None:
    """Return what became of *write* while *found* is at its key; None if it may be sent."""
    if found is None:
        return _decide_without(write)
    if isinstance(found, StoreError):
        return None  # the store decides: an ANY replaces it, anything else is refused
    if found.nonce == write.nonce and found.data == write.data:
        return Decision(Outcome.WRITTEN, found.version)
    if found.data == write.data:
        return Decision(Outcome.SAME, found.version)
    return _decide_with_other(write, found.version)


def decide_refused(write: Write, found: Found) -> Decision | None:
    """Return the same of a write that the store refused; None if it may be sent once more."""
    if isinstance(found, StoreError):
        return Decision(Outcome.CONFLICT, None, f"what is there is no record of kip30's: {found}")
    return decide(write, found)


def _decide_without(write: Write) -> Decision | None:
    if write.data is None:
        return Decision(Outcome.SAME, None, "the key is not there")
    if write.condition is Condition.ANY or write.condition is Condition.ABSENT:
        return None
    return Decision(Outcome.CONFLICT, None, "the key is not there any more")


def _decide_with_other(write: Write, version: Version) -> Decision | None:
    condition = write.condition
    if condition is Condition.ANY or condition is Condition.PRESENT or condition == version:
        return None
    if isinstance(condition, Version):
        why = f"the key has version {version} with other data, not {condition}"
    else:
        why = f"the key is there with other data, at version {version}"
    return Decision(Outcome.CONFLICT, version, why)
