"""The newest state of one JSON record of kip30's own that clients watch and read."""

import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from kip30.driver.records import Entry, Kind, Snapshot, Target
from kip30.errors import StoreError
from kip30.names import Key
from kip30.runtime.json_records import key_unless_internal
from kip30.runtime.unreadable import UnreadableLog

R = TypeVar("R")


class WatchedRecord(Generic[R]):
    """Decodes each state of the record once. Not thread-safe: its owner has a lock.

    A record that is not there, or that cannot be read, counts as the one of the beginning.

    Attributes:
        record: The newest one that is known.
    """

    def __init__(self, target: Target, none: R, decode: Callable[[bytes], R]) -> None:
        """Begin with *none*; *decode* raises `StoreError` for what is no such record."""
        self.record = none
        self._none = none
        self._target = target
        self._decode = decode
        self._nonce: str = ""
        # The order of the state that has shown it.
        self._order = -1
        self._unreadable: Mapping[str, str] = {}
        # Why the record cannot be decoded, until it is logged.
        self._error: StoreError | None = None

    def take(self, state: Snapshot) -> None:
        """Take *state*, unless a newer one is known."""
        if state.order <= self._order:
            return
        self._order, self._unreadable = state.order, state.unreadable
        entry: Entry | None = next(iter(state.entries.values()), None)
        nonce = "" if entry is None else entry.nonce
        if nonce == self._nonce:
            return
        self._nonce, self.record = nonce, self._none
        if entry is None:
            return
        try:
            self.record = self._decode(entry.data)
        except StoreError as error:
            self._error = error

    def reporter(self, unreadable: UnreadableLog, log: logging.Logger) -> Callable[[], None]:
        """Return what logs a record that cannot be read, once; call it without the lock.

        A handler of the log may block.
        """
        error, self._error = self._error, None
        found = self._unreadable

        def report() -> None:
            unreadable.note(self._target, found)
            if error is not None:
                log.warning("%s", error)

        return report


def record_target(name: str, key: Callable[[str], Key]) -> Target | None:
    """Return what to watch for the record of *name*; None where `key_unless_internal` has none."""
    found = key_unless_internal(name, key)
    return None if found is None else Target(Kind.VALUE, *found)
