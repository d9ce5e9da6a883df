"""Deleting many keys, each only if it still has the version that was seen."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kip30.driver.records import Version
from kip30.errors import (
    AuthenticationError,
    InvalidNameError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    VersionConflictError,
)
from kip30.storage import Storage


class Deletion(NamedTuple):
    """The outcome of `delete_versions`.

    Attributes:
        deleted: Number of keys that were deleted.
        changed: Keys that have another version, and stay.
        gone: Keys that were not there any longer.
        unknown: Keys whose deletion may have been done: the answer was lost.
        left: Keys that were not tried, or not accepted, because the store did not answer.
        error: Why it did not; None if it did.
        kept: Keys that cannot be deleted, because the store does not allow it or their records
            cannot be read, each with the error.
    """

    deleted: int
    changed: list[str]
    gone: list[str]
    unknown: list[str]
    left: list[str]
    error: UnavailableError | OutcomeUnknownError | None = None
    kept: Mapping[str, Kip30Error] = MappingProxyType({})


def delete_versions(storage: Storage[bytes], keys: Iterable[tuple[str, Version]]) -> Deletion:
    """Delete each of *keys* that still has its version. Can be repeated.

    Once the store does not answer, no further key is tried. Another error of a key keeps no other
    key from being deleted.

    Raises:
        UnsupportedError: The store has no ``compare-and-set``. Nothing was done.
    """
    remaining = iter(keys)
    changed, gone, unknown, left = list[str](), list[str](), list[str](), list[str]()
    kept = dict[str, Kip30Error]()
    silence: UnavailableError | OutcomeUnknownError | None = None
    deleted = 0
    for key, version in remaining:
        try:
            storage.delete(key, expected=version)
        except VersionConflictError:
            changed.append(key)
        except KeyMissingError:
            gone.append(key)
        except OutcomeUnknownError as error:
            unknown.append(key)
            silence = error
            break
        except UnavailableError as error:
            left.append(key)
            silence = error
            break
        except (AuthenticationError, StoreError, InvalidNameError) as error:
            kept[key] = error
        else:
            deleted += 1
    left += (key for key, _ in remaining)
    return Deletion(deleted, changed, gone, unknown, left, silence, kept)
