"""The errors of refused requests: one wording for each condition, the same for every store.

Each function returns the error, of which nothing was done.
"""

from collections.abc import Callable

from kip30.driver.records import Condition, Fence, Guard, Version, Write
from kip30.errors import (
    DefiniteError,
    FencedError,
    GuardError,
    KeyExistsError,
    KeyMissingError,
    MemberExistsError,
    NotMemberError,
    StoreError,
    VersionConflictError,
)
from kip30.names import Key


def member_exists(group: str, member_id: str) -> MemberExistsError:
    """A live claim with another nonce holds the id."""
    return MemberExistsError(f"{member_id!r} is a member of {group!r} already")


def not_member(group: str, member_id: str) -> NotMemberError:
    """The claim to be replaced is gone."""
    return NotMemberError(f"{member_id!r} is no longer a member of {group!r}")


def unowned(place: str) -> StoreError:
    """The record at *place* is one of a claim, but ends with no session, so no client holds it."""
    return StoreError(f"{place} is no claim of kip30: it ends with no session; delete it")


class OtherRecordError(DefiniteError):
    """A claim has another record in the store than the one to be replaced. Nothing was done."""


def other_record(member_id: str) -> OtherRecordError:
    """The claim is there, and its record is not the one to be replaced."""
    return OtherRecordError(f"the record of {member_id!r} is not the one that is to be replaced")


def fenced(fence: Fence) -> FencedError:
    """The fence is not the newest epoch of its service, or its claim has ended."""
    return FencedError(f"epoch {fence.epoch} is not the newest of {fence.service!r}, or is over")


def stale_guard(guard: Guard) -> GuardError:
    """A guard's key has another version, or is gone."""
    return GuardError(f"the guard {str(guard.key)!r} is no longer at version {guard.version}")


def unmet_guard(write: Write, found: Callable[[Key], Version | None]) -> GuardError | None:
    """Return what refuses *write* by its guards, or None if all of them hold.

    Args:
        write: What is to be written.
        found: Returns the version that a key has; None if it is absent.
    """
    for guard in write.guards:
        if found(guard.key) != guard.version:
            return stale_guard(guard)
    return None


def key_exists(key: Key) -> KeyExistsError:
    """The key had to be absent."""
    return KeyExistsError(f"{str(key)!r} exists already")


def key_missing(key: Key) -> KeyMissingError:
    """The key had to be present, or is to be deleted."""
    return KeyMissingError(f"there is no key {str(key)!r}")


def version_conflict(
    key: Key, wanted: Version | Condition, found: Version | None = None
) -> VersionConflictError:
    """The key has another version than *wanted*: *found*, if the store tells which."""
    text = f"{str(key)!r} is not at version {wanted}"
    return VersionConflictError(text if found is None else f"{text} but at {found}")


def unmet(write: Write, found: Version | None) -> DefiniteError | None:
    """Return what refuses *write* of a key at version *found*, or None if its condition is met.

    Args:
        write: What is to be written.
        found: The version that the key has; None if it is absent.
    """
    condition = write.condition
    if found is None:
        is_met = condition in {Condition.ABSENT, Condition.ANY} and write.data is not None
    elif isinstance(condition, Version):
        is_met = condition == found
    else:
        is_met = condition is not Condition.ABSENT
    return None if is_met else refused(write, found)


def refused(write: Write, found: Version | None) -> DefiniteError:
    """Return why the store refused *write* by its condition, as it found the key."""
    if found is None:
        return key_missing(write.key)
    if write.condition is Condition.ABSENT:
        return key_exists(write.key)
    return version_conflict(write.key, write.condition, found)
