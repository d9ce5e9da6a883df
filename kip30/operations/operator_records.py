"""The records in which operators write, and what each entry says of its operator."""

import getpass
import platform
from collections.abc import Callable
from typing import Generic, TypeVar

from kip30.codecs import BYTES
from kip30.driver import Capability
from kip30.driver.records import Version
from kip30.errors import (
    KeyExistsError,
    KeyMissingError,
    UnsupportedError,
    UsageError,
    VersionConflictError,
)
from kip30.locator import PluginLocator
from kip30.names import Key

R = TypeVar("R")

LONGEST_REASON = 200
"""Most characters of the reason of a directive."""


class OperatorRecord(Generic[R]):
    """One record that several operators may write at the same time: no write is lost."""

    def __init__(
        self,
        locator: PluginLocator,
        key: Key,
        none: R,
        decode: Callable[[bytes], R],
        encode: Callable[[R], bytes],
    ) -> None:
        """Use *none* while there is no record; *decode* raises `StoreError` for a foreign one."""
        self._backend = locator.backend
        self._storage = locator.storage(BYTES)
        self._key = str(key)
        self._none = none
        self._decode = decode
        self._encode = encode

    def read(self) -> R:
        """Return the record, as it is now."""
        return self._read()[0]

    def write(self, change: Callable[[R], R]) -> R:
        """Write what *change* makes of the record, unless it stays the same, and return that.

        *change* is called again if another operator was first.

        Raises:
            UnsupportedError: The store has no ``compare-and-set``.
        """
        if Capability.COMPARE_AND_SET not in self._backend.capabilities:
            raise UnsupportedError(f"store {self._backend.name!r} has no compare-and-set")
        while True:
            found, version = self._read()
            wanted = change(found)
            if wanted == found or self._has_written(version, wanted):
                return wanted

    def _read(self) -> tuple[R, Version | None]:
        found = self._storage.get(self._key)
        if found is None:
            return self._none, None
        return self._decode(found.value), found.version

    def _has_written(self, version: Version | None, wanted: R) -> bool:
        data = self._encode(wanted)
        try:
            if version is None:
                self._storage.put(self._key, data)
            else:
                self._storage.compare_and_set(self._key, version, data)
        except (KeyExistsError, KeyMissingError, VersionConflictError):
            return False
        return True


def this_operator() -> str:
    """Return the user and the host of this process, for people; it is no proof."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the system does not know the user
        user = "?"
    return f"{user}@{platform.node()}"


def check_reason(reason: str) -> str:
    """Return *reason*, which is to be shown to operators.

    Raises:
        UsageError: It is too long, or has characters that cannot be printed.
    """
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise UsageError(
            f"the reason must have up to {LONGEST_REASON} characters that can be printed"
        )
    return reason
