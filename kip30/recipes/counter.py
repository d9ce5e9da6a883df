"""A number that all clients share and change one after the other, over any store.

It is a record that is replaced by compare-and-set, at the version that was seen last. While only
one client changes it, each change takes one round trip.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from kip30.codecs import JSON
from kip30.errors import (
    KeyExistsError,
    KeyMissingError,
    StoreError,
    UnavailableError,
    VersionConflictError,
)
from kip30.locator import PluginLocator
from kip30.names import check_id
from kip30.recipes.argument_checks import whole
from kip30.storage import Storage, Versioned

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.064


def counter_key(name: str) -> str:
    """Return the key of counter *name*.

    Raises:
        InvalidNameError: *name* is not a valid name, or has more than 239 bytes after escaping.
    """
    namespace = check_id(f"kip30.counter/{check_id(name, 'counter')}", "counter")
    return f"{namespace}/number"


class Counter:
    """A whole number named *name*, 0 at first, which all clients share. Thread-safe.

    Its changes happen one after the other: each sees the number that the previous one left. No
    change is lost and none is done twice, even if an answer of the store is lost.

    Every method may raise `ClosedError` or `LifecycleError` (nothing was sent), `UnsupportedError`
    if the store has no ``compare-and-set``, and `StoreError` if the record is not a counter.
    """

    def __init__(self, locator: PluginLocator, name: str) -> None:
        """Create a counter object for the store of *locator*; nothing is sent.

        Raises:
            InvalidNameError: *name* is not a valid name, or has more than 239 bytes after escaping.
        """
        self._key = counter_key(name)
        self._storage: Storage[Any] = locator.storage(JSON)
        self._locator = locator
        # Held for each change, so that the threads of one client do not race each other.
        self._changing = threading.Lock()
        # The last number that this client saw, perhaps outdated; None if there was none. Under the
        # lock.
        self._seen: Versioned[int] | None = None

    def value(self) -> int:
        """Return the number, read from the store now.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
        """
        found = self._read()
        return 0 if found is None else found.value

    def add(self, by: int = 1) -> int:
        """Add *by*, which may be negative, and return the new number.

        Raises:
            UsageError: *by* is not a whole number. Nothing was sent.
            UnavailableError: Nothing was added: the store did not answer, or others changed the
                number each time, by the operation timeout. It may take two of them while another
                thread of this object waits for the store.
            OutcomeUnknownError: It may have been added, once.
        """
        whole(by, "by")
        changed = self._change(lambda number: number + by)
        assert changed is not None  # noqa: S101  it is always wanted
        return changed

    def compare_and_set(self, expected: int, new: int) -> bool:
        """Set it to *new* if it is *expected*, and return whether it was.

        Raises:
            UsageError: *expected* or *new* is not a whole number. Nothing was sent.
            UnavailableError, OutcomeUnknownError: As for `add`.
        """
        whole(expected, "expected")
        whole(new, "new")
        return self._change(lambda number: new if number == expected else None) is not None

    def _change(self, following: Callable[[int], int | None]) -> int | None:
        """Replace the number by the result of *following*; if that is None, leave it."""
        # First: no thread of a forked child releases what is held there.
        seconds = self._locator.context.operation_timeout_seconds
        until = time.monotonic() + seconds
        if not self._changing.acquire(timeout=seconds):
            raise UnavailableError("other threads used the counter the whole time")
        try:
            return self._changed(following, until)
        finally:
            self._changing.release()

    def _changed(self, following: Callable[[int], int | None], until: float) -> int | None:
        pause, is_fresh = _FIRST_PAUSE, self._seen is None
        if is_fresh:
            self._seen = self._read()
        while True:
            number = following(0 if self._seen is None else self._seen.value)
            if number is None:
                if is_fresh:
                    return None
            elif self._replace(number):
                return number
            elif time.monotonic() >= until:
                raise UnavailableError(f"others have changed {self._key!r} each time")
            else:
                # With jitter, or two clients that conflicted once would conflict again.
                time.sleep(random.uniform(0, pause))  # noqa: S311
                pause = min(_LONGEST_PAUSE, 2 * pause)
            self._seen, is_fresh = self._read(), True

    def _replace(self, number: int) -> bool:
        """Replace the last value that was seen by *number*; false if that value is outdated."""
        seen, self._seen = self._seen, None
        try:
            if seen is None:
                version = self._storage.put(self._key, number)
            else:
                version = self._storage.compare_and_set(self._key, seen.version, number)
        except (KeyExistsError, KeyMissingError, VersionConflictError):
            return False
        self._seen = Versioned(number, version)
        return True

    def _read(self) -> Versioned[int] | None:
        found = self._storage.get(self._key)
        if found is None:
            return None
        if not isinstance(found.value, int) or isinstance(found.value, bool):
            raise StoreError(f"{self._key!r} holds {found.value!r:.60}, which is not a number")
        return Versioned(found.value, found.version)
