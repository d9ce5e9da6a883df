"""The record of a service's successful runs, for a command that must succeed once per key.

A value at ``kip30.done/<service>`` has the last `KEPT` of them. Only the leader of the service adds
one, with its fence, so that no two runs of a key can both be added by their own terms.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from kip30.driver.records import Version
from kip30.errors import (
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UsageError,
    VersionConflictError,
)
from kip30.runtime import json_records
from kip30.storage import Fencing, Storage

KEPT = 100
"""Number of runs that the record keeps. An earlier key may run again."""

KEY_BYTES = 128
"""Longest key of a run, in bytes of UTF-8."""

_NAMESPACE = "kip30.done"
_FORMAT = 1
_PAUSE_SECONDS = 0.1
_LATEST = 253_402_300_799.0
"""End of the year 9999: a time after it cannot be printed."""

_UNANSWERED = (UnavailableError, OutcomeUnknownError)
_Row = Mapping[str, Any]


class CompletedRun(NamedTuple):
    """A run that has succeeded.

    Attributes:
        key: The key that must run once.
        candidate: The candidate that ran it.
        epoch: The epoch of its term.
        at: The time of its end by the clock of its machine, in seconds since 1970.
    """

    key: str
    candidate: str
    epoch: int
    at: float

    def described(self) -> str:
        """Return the run in words."""
        at = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{self.key!r} was done by {self.candidate}, epoch {self.epoch}, {at}"


def check_run_key(key: str) -> str:
    """Return *key* if it can be that of a run.

    Raises:
        UsageError: It is empty, begins with ``-``, has more than `KEY_BYTES`, or a character that
            cannot be printed.
    """
    if not key:
        raise UsageError("the key is empty: write what the run is for, such as a date")
    if key.startswith("-"):  # as the `--` before the command is, if a shell variable is not set
        raise UsageError(f"the key {key!r} begins with '-': is it missing before the command?")
    if not key.isprintable():
        raise UsageError(f"the key {key!r} has characters that cannot be printed")
    if (size := len(key.encode())) > KEY_BYTES:
        raise UsageError(f"the key has {size} bytes: {KEY_BYTES} is the limit")
    return key


def record_key(service: str) -> str:
    """Return the key of the record of *service*.

    Raises:
        InvalidNameError: The name is too long.
    """
    return str(json_records.record_key(_NAMESPACE, service))


class CompletedRuns:
    """The record of one service. Thread-safe."""

    def __init__(self, storage: Storage[bytes], service: str) -> None:
        """Read and write nothing yet.

        Raises:
            InvalidNameError: The name of *service* is too long.
        """
        self._storage = storage
        self._key = record_key(service)

    def find(self, key: str) -> CompletedRun | None:
        """Return the run of *key* that has succeeded, if it is in the record.

        Raises:
            UnavailableError: The store did not answer in time.
            StoreError: The record cannot be read, and nothing else shows which keys are done.
        """
        found = self._storage.get(self._key)
        return None if found is None else run_of(key, self._key, found.value)

    def add(
        self, run: CompletedRun, fence: Fencing, *, goes_on: Callable[[], bool] = lambda: False
    ) -> None:
        """Add *run*, unless its key is there. Retries while *goes_on* if there is no answer.

        Raises:
            FencedError: A later term of the service has begun. Nothing was added.
            UnavailableError: The store did not answer. Nothing was added.
            StoreError: The record cannot be read. Nothing was added.
            OutcomeUnknownError: The run may have been added: an answer was lost. That is raised in
                place of each of the others if it came first.
        """
        lost: OutcomeUnknownError | None = None
        while True:
            try:
                if self._has_added(run, fence):
                    return
            except Kip30Error as error:
                if isinstance(error, OutcomeUnknownError):
                    lost = lost or error
                if not (isinstance(error, _UNANSWERED) and goes_on()):
                    raise lost or error  # noqa: B904  one of both is the other's context
            time.sleep(_PAUSE_SECONDS)

    def _has_added(self, run: CompletedRun, fence: Fencing) -> bool:
        """Return whether the run is there now; false if the record has changed meanwhile."""
        found = self._storage.get(self._key)
        record: Mapping[str, Any] = {} if found is None else _record(self._key, found.value)
        rows = _rows(self._key, record)
        if any(row.get("key") == run.key for row in rows):
            return True
        kept = [*rows, run._asdict()][-KEPT:]
        changed = {**record, "format": _FORMAT, "done": kept}
        data = json.dumps(changed).encode()
        try:
            self._write(None if found is None else found.version, data, fence)
        except (KeyExistsError, KeyMissingError, VersionConflictError):
            return False
        return True

    def _write(self, expected: Version | None, data: bytes, fence: Fencing) -> None:
        if expected is None:
            self._storage.put(self._key, data, fence=fence)
        else:
            self._storage.compare_and_set(self._key, expected, data, fence=fence)


def run_of(key: str, name: str, data: bytes) -> CompletedRun | None:
    """Return the run of *key* in the record *data*, which is stored under *name*.

    Raises:
        StoreError: *data* is no such record.
    """
    for row in _rows(name, _record(name, data)):
        if row.get("key") == key:
            at, epoch = row.get("at"), row.get("epoch")
            return CompletedRun(
                key,
                str(row.get("candidate", "")),
                epoch if isinstance(epoch, int) else 0,
                float(at) if isinstance(at, (int, float)) and 0 <= at <= _LATEST else 0.0,
            )
    return None


def _record(name: str, data: bytes) -> Mapping[str, Any]:
    try:
        return json_records.fields_of(data, _FORMAT)
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, str(error)) from error


def _rows(name: str, record: Mapping[str, Any]) -> Sequence[_Row]:
    rows: object = record.get("done", [])
    if not isinstance(rows, list):
        raise _unreadable(name, "its runs are no list")
    found = cast("list[object]", rows)
    if not all(isinstance(row, dict) for row in found):
        raise _unreadable(name, "one of its runs is no object")
    return cast("list[_Row]", found)


def _unreadable(name: str, why: str) -> StoreError:
    return StoreError(
        f"the record of completed runs {name} cannot be read: {why}:"
        " delete it if its commands may run again"
    )
