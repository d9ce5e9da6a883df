"""Deleting many keys, each only if it still has the version that was seen."""

from collections.abc import Iterable
from typing import NamedTuple

from kip30.driver.records import Version
from kip30.errors import KeyMissingError, OutcomeUnknownError, VersionConflictError
from kip30.storage import Storage


class Deletion(NamedTuple):
    """The outcome of `delete_versions`.

    Attributes:
        deleted: Number of keys that were deleted.
        changed: Keys that have another version, and stay.
        gone: Keys that were not there any longer.
        unknown: Keys whose deletion may have been done: the answer was lost.
    """

    deleted: int
    changed: list[str]
    gone: list[str]
    unknown: list[str]


def delete_versions(storage: Storage[bytes], keys: Iterable[tuple[str, Version]]) -> Deletion:
    """Delete each of *keys* that still has its version. Can be repeated.

    Raises:
        UnsupportedError: The store has no ``compare-and-set``. Nothing was done.
        UnavailableError: The store did not answer in time. Some keys may have been deleted.
    """
    deleted, changed, gone, unknown = 0, list[str](), list[str](), list[str]()
    for key, version in keys:
        try:
            storage.delete(key, expected=version)
        except VersionConflictError:
            changed.append(key)
        except KeyMissingError:
            gone.append(key)
        except OutcomeUnknownError:
            unknown.append(key)
        else:
            deleted += 1
    return Deletion(deleted, changed, gone, unknown)
