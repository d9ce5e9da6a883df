"""Writing many keys from the lines of an export: all lines are checked before any is written."""

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, cast

from kip30.codecs import STR
from kip30.driver.records import Version
from kip30.errors import (
    CodecError,
    InvalidNameError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    PartialWriteError,
    UnavailableError,
    UsageError,
    ValueTooLargeError,
    VersionConflictError,
)
from kip30.names import parse_key
from kip30.storage import Storage

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of a line at most: JSON may need six for each byte of a value."""

_MOST_KEYS = 200
_MOST_BYTES = 4 * 1024 * 1024
"""Keys and bytes of values in one call, which ends by one operation timeout, 5 s by default. A bulk
write and a page of a scan have as many bytes."""


class ConflictRule(Enum):
    """The handling of a key that is there with another value."""

    FAIL = "fail"
    """Nothing is written at all."""
    SKIP = "skip"
    """It stays as it is."""
    UPDATE = "update"
    """Its value is replaced, unless it changes once more meanwhile."""


class ImportPlan(NamedTuple):
    """The writes that an import would make.

    Attributes:
        missing: The values of keys that are not there.
        different: Values and the versions that they would replace.
        equal: Number of keys that have their value already.
    """

    missing: Mapping[str, bytes]
    different: Mapping[str, tuple[bytes, Version]]
    equal: int


class Import(NamedTuple):
    """The outcome of `write_import`.

    Attributes:
        created: Number of keys that were created.
        updated: Number of keys whose value was replaced.
        conflicts: Keys that were created, changed or deleted by others meanwhile, and stay so.
        unknown: Keys that may have been written: the answer was lost.
        failed: Other errors, by key. Nothing was done for these.
        silence: The first error of a store that did not answer; None if it did.
    """

    created: int
    updated: int
    conflicts: Sequence[str]
    unknown: Sequence[str]
    failed: Mapping[str, Kip30Error]
    silence: UnavailableError | OutcomeUnknownError | None = None


def parse_exported(lines: Iterable[bytes]) -> dict[str, bytes]:
    """Return the values by key that *lines* of JSON have, as `kip30 kv export` prints them.

    Raises:
        UsageError: A line is not one, or has the key of an earlier line. The text has its number.
    """
    values = dict[str, bytes]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            key, value = _parsed(line)
        except (UsageError, InvalidNameError, CodecError) as error:
            raise UsageError(f"line {number}: {error}") from error
        if key in values:
            raise UsageError(f"line {number}: {key!r} is in an earlier line, too")
        values[key] = value
    return values


def _parsed(line: bytes) -> tuple[str, bytes]:
    if len(line) > LONGEST_LINE:
        raise UsageError(f"it has more than {LONGEST_LINE} bytes")
    try:
        record: object = json.loads(line.decode())
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        raise UsageError(f"it is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise UsageError('it is no object: write {"key": …, "value": …}')
    fields = cast("dict[str, Any]", record)
    key = str(parse_key(fields.get("key", "")))
    if isinstance(value := fields.get("value"), str):
        return key, STR.encode(value)
    if isinstance(value := fields.get("value_base64"), str):
        try:
            return key, b64decode(value, validate=True)
        except ValueError as error:
            raise UsageError(f"value_base64 of {key!r} is no base64: {error}") from error
    raise UsageError(f"{key!r} has neither a text `value` nor a `value_base64`")


def plan_import(
    storage: Storage[bytes], values: Mapping[str, bytes], *, value_bytes: int
) -> ImportPlan:
    """Return what writing *values* would do. Writes nothing.

    Args:
        storage: The storage to write to.
        values: The values by key.
        value_bytes: The largest value that the store takes: ``locator.backend.limits.value_bytes``.

    Raises:
        ValueTooLargeError: A value has more bytes; the text has its key. Nothing was read.
        UnavailableError: The store did not answer in time.
    """
    for key, value in values.items():
        if len(value) > value_bytes:
            raise ValueTooLargeError(
                f"the value of {key!r} has {len(value)} bytes: {value_bytes} is the limit"
            )
    missing, different, equal = dict[str, bytes](), dict[str, tuple[bytes, Version]](), 0
    for part in _parts(values):
        present = storage.fetch_many(part).result()
        for key, value in part.items():
            if key not in present:
                missing[key] = value
            elif present[key] == value:
                equal += 1
            elif (found := storage.get(key)) is None:
                missing[key] = value
            else:
                different[key] = (value, found.version)
    return ImportPlan(missing, different, equal)


def write_import(storage: Storage[bytes], plan: ImportPlan, *, update: bool) -> Import:
    """Create what *plan* found missing and, with *update*, replace what it found different.

    Can be repeated: what was written is equal then. An error of one key stops no other key; but
    when the store does not answer, nothing more is sent.
    """
    errors, is_away = dict[str, Kip30Error](), False
    replaced: Mapping[str, tuple[bytes, Version]] = plan.different if update else {}
    for part in _parts(plan.missing):
        failed = _not_sent(part) if is_away else _create(storage, part)
        is_away = is_away or _got_no_answer(failed, len(part))
        errors |= failed
    for key, (value, version) in replaced.items():
        failed = _not_sent([key]) if is_away else _replace(storage, key, version, value)
        is_away = is_away or _got_no_answer(failed, 1)
        errors |= failed
    met = (KeyExistsError, KeyMissingError, VersionConflictError)
    return Import(
        len(plan.missing) - len(plan.missing.keys() & errors.keys()),
        len(replaced) - len(replaced.keys() & errors.keys()),
        [key for key, error in errors.items() if isinstance(error, met)],
        [key for key, error in errors.items() if isinstance(error, OutcomeUnknownError)],
        {
            key: error
            for key, error in errors.items()
            if not isinstance(error, (*met, OutcomeUnknownError))
        },
        _silence_of(errors.values()),
    )


def _create(storage: Storage[bytes], values: Mapping[str, bytes]) -> Mapping[str, Kip30Error]:
    try:
        storage.put_many(values)
    except PartialWriteError as error:
        return error.failed
    return {}


def _replace(
    storage: Storage[bytes], key: str, version: Version, value: bytes
) -> Mapping[str, Kip30Error]:
    try:
        storage.compare_and_set(key, version, value)
    except Kip30Error as error:
        return {key: error}
    return {}


def _not_sent(keys: Iterable[str]) -> Mapping[str, Kip30Error]:
    return dict.fromkeys(keys, UnavailableError("not sent, because the store does not answer"))


def _silence_of(errors: Iterable[Kip30Error]) -> UnavailableError | OutcomeUnknownError | None:
    """Return the first lost answer, or else the first error of a store that gave none."""
    silent = [one for one in errors if isinstance(one, (UnavailableError, OutcomeUnknownError))]
    lost = (one for one in silent if isinstance(one, OutcomeUnknownError))
    return next(lost, silent[0] if silent else None)


def _got_no_answer(failed: Mapping[str, Kip30Error], count: int) -> bool:
    silent = (UnavailableError, OutcomeUnknownError)
    return len(failed) == count and all(isinstance(one, silent) for one in failed.values())


def _parts(values: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Yield *values* in parts that one call can read or write; a large value is a part alone."""
    part, size = dict[str, bytes](), 0
    for key, value in values.items():
        if part and (len(part) == _MOST_KEYS or size + len(value) > _MOST_BYTES):
            yield part
            part, size = {}, 0
        part[key] = value
        size += len(value)
    if part:
        yield part
