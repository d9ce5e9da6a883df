"""What must hold for a write: how it is put to the server, and what a refusal means."""

from kip30.driver.records import Condition, Version, Write
from kip30.errors import (
    DefiniteError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)
from kip30_backends.cassandra.fences import height, refused
from kip30_backends.cassandra.library import Row

_VERSIONS = range(2**63)
_NEVER = -1
"""A version that no record has: those of this store have no minor part."""


def refusal(write: Write, version: int | None, partition: Row) -> DefiniteError | None:
    """Return why a write cannot be done, by what its key's *version* is; None if it could be."""
    if write.fence is not None:
        met = height(partition, write.fence.service)
        if met is None or met < write.fence.epoch:
            return None  # to be found out first
        if met > write.fence.epoch:
            return refused(write.fence)
    return _conflict(write, version)


def _conflict(write: Write, version: int | None) -> DefiniteError | None:
    key, condition = str(write.key), write.condition
    if version is None:
        may_be_absent = condition in {Condition.ABSENT, Condition.ANY} and write.data is not None
        return None if may_be_absent else KeyMissingError(f"there is no key {key!r}")
    if condition is Condition.ABSENT:
        return KeyExistsError(f"{key!r} is there already")
    if isinstance(condition, Version) and condition != Version(version):
        return VersionConflictError(f"{key!r} has version {version}, not {condition}")
    return None


def form(write: Write) -> str:
    """Return by what form of statement the condition of *write* is put."""
    if isinstance(write.condition, Version):
        return "exact"
    if write.data is None or write.condition is Condition.PRESENT:
        return "present"
    return "exact" if write.condition is Condition.ABSENT else "any"


def exactly(condition: Condition | Version) -> tuple[int | None, ...]:
    """Return the version to compare with, if the form of the statement takes one."""
    if isinstance(condition, Version):
        is_possible = condition.major in _VERSIONS and not condition.minor
        return (condition.major if is_possible else _NEVER,)
    return (None,) if condition is Condition.ABSENT else ()
