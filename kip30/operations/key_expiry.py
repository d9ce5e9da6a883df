"""Keys with a time to live: a record beside each says until when, and a sweep deletes them.

The stores' own ways do not do: ZooKeeper's is off by default, etcd's and Consul's end the key of a
writer that does not renew, and Cassandra's ends it without an event, so that no listener would be
notified. A sweep deletes like any client. It deletes a key only at the version that the record has,
so a key that was written again, without a time to live, stays. A store into which both were copied
may have given that version to another value, so the record has the nonce of the write as well.

The record of a key is in `RECORDS`, under the SHA-256 of its name: a name may be too long to be a
part of another one.
"""

import json
import time
from hashlib import sha256
from typing import NamedTuple

from kip30.driver.records import Fence, Version, parse_version
from kip30.errors import (
    AuthenticationError,
    InvalidNameError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UsageError,
    VersionConflictError,
)
from kip30.names import INTERNAL
from kip30.operations.key_scan import KeyScan, StoredKey
from kip30.runtime.json_records import UNREADABLE, fields_of, seconds, text
from kip30.runtime.resolution import Configuration
from kip30.storage import Storage, Versioned

RECORDS = f"{INTERNAL}expiry"
"""The namespace of the records."""

LONGEST_TTL_SECONDS = 10 * 365 * 86_400.0
_FORMAT = 1
_CHANGED = (VersionConflictError, KeyMissingError)


class KeyExpiry(NamedTuple):
    """Until when a key lives.

    Attributes:
        key: The key.
        version: The only version of it that ends.
        nonce: That of the write that has made this version, which no copy of the key has.
        until: When, in seconds since 1970.
    """

    key: str
    version: Version
    nonce: str
    until: float


class Sweep(NamedTuple):
    """The outcome of `sweep_keys`.

    Attributes:
        deleted: Number of keys that were deleted because their time was over.
        waiting: Number of keys whose time is not over.
        changed: Number of keys that were written again, or deleted, and so do not end.
        kept: Keys that cannot be deleted, and records that cannot be read, each with the reason.
        error: Why the store did not answer, so that keys may be left; None if it did.
    """

    deleted: int
    waiting: int
    changed: int
    kept: dict[str, str]
    error: UnavailableError | OutcomeUnknownError | None = None


def set_for(
    storage: Storage[bytes],
    key: str,
    value: bytes,
    ttl_seconds: float,
    *,
    fence: Fence | None = None,
) -> Version:
    """Write *value* at *key*, which the next sweep after *ttl_seconds* deletes; return its version.

    A later call replaces the time. Any other write of the key cancels it. A process that is killed
    between the two writes of this leaves the key for ever.

    Args:
        storage: Where to write.
        key: The key; it is created, or its value replaced.
        value: The value.
        ttl_seconds: How long the key is there at least, by the time of day, above 0. It is deleted
            by the clock of the machine that sweeps.
        fence: As for `kip30.Storage.set`.

    Raises:
        UsageError: *ttl_seconds* is out of range, or the store has no ``set``. Nothing was written.
        OutcomeUnknownError: It may have been written, or it was, and its end is not noted: then it
            stays. Repeat the call.
        Kip30Error: As of `kip30.Storage.set`; nothing was written.
    """
    if not 0 < ttl_seconds <= LONGEST_TTL_SECONDS:
        raise UsageError(
            f"a time to live of {ttl_seconds:g} s is not possible: give up to 10 years"
        )
    version = storage.set(key, value, fence=fence)
    until = time.time() + ttl_seconds
    try:
        written = storage.last_write(key)
        if written is not None and written[0] == version:
            _note(storage, KeyExpiry(key, *written, until))
    except Kip30Error as error:
        raise OutcomeUnknownError(
            f"{key!r} was written, with version {version}, and may stay for ever: its time to live"
            f" was not noted: {error}"
        ) from error
    return version


def _note(storage: Storage[bytes], expiry: KeyExpiry) -> None:
    """Write the record of *expiry*, unless another call has written the key since, and noted it."""
    record_key, data = _record_key(expiry.key), _encode(expiry)
    while True:
        record = storage.get(record_key)
        if record is not None and _is_later(record, expiry) and not _is_there(storage, expiry):
            return
        try:
            if record is None:
                storage.put(record_key, data)
            else:
                storage.compare_and_set(record_key, record.version, data)
        except (KeyExistsError, *_CHANGED):
            continue
        return


def _is_later(record: Versioned[bytes], expiry: KeyExpiry) -> bool:
    """Return whether *record* has a later version of the key; one of another store may, too."""
    try:
        noted = _decode(StoredKey(_record_key(expiry.key), record.value, record.version))
    except (*UNREADABLE, UsageError):
        return False
    return noted.version > expiry.version


def sweep_keys(config: Configuration, storage: Storage[bytes], *, dry_run: bool = False) -> Sweep:
    """Delete the keys whose time is over, by the clock of this machine; and records of no use.

    Once the store does not answer, no further key is tried. Several may sweep at once.

    Args:
        config: The store, which must be able to scan: the records are read in bulk.
        storage: The same store.
        dry_run: Delete nothing, and count what would be deleted.

    Raises:
        UnsupportedError: The store does not declare ``scanning`` or ``compare-and-set``. Nothing
            was deleted.
        ClosedError, LifecycleError: The storage is closed. Some keys may be deleted.
        UnavailableError, StoreError: The records could not be read. Nothing was deleted.
    """
    scan, now = KeyScan(config, RECORDS), time.time()
    due, kept = list[tuple[KeyExpiry, Version]](), dict[str, str]()
    deleted = waiting = changed = 0
    for record in scan:  # to its end first: deletions could move what was not read yet
        try:
            expiry = _decode(record)
        except (*UNREADABLE, UsageError) as error:
            kept[record.key] = str(error)
        else:
            waiting += expiry.until > now
            due += [(expiry, record.version)] if expiry.until <= now else []
    kept |= {one.shown_key: one.reason for one in scan.unreadable}
    for expiry, version in due:
        name = expiry.key
        try:
            was_there = _is_there(storage, expiry) and (
                dry_run or _delete(storage, name, expiry.version)
            )
            deleted += was_there
            changed += not was_there
            if not dry_run:  # if this ends in between, the next sweep finds the record alone
                name = _record_key(expiry.key)
                _delete(storage, name, version)
        except (UnavailableError, OutcomeUnknownError) as error:
            return Sweep(deleted, waiting, changed, kept, error)
        except (AuthenticationError, StoreError, InvalidNameError) as error:
            kept[name] = str(error)
    return Sweep(deleted, waiting, changed, kept)


def _is_there(storage: Storage[bytes], expiry: KeyExpiry) -> bool:
    return storage.last_write(expiry.key) == (expiry.version, expiry.nonce)


def _delete(storage: Storage[bytes], key: str, version: Version) -> bool:
    try:
        storage.delete(key, expected=version)
    except _CHANGED:
        return False
    return True


def _record_key(key: str) -> str:
    return f"{RECORDS}/{sha256(key.encode()).hexdigest()}"


def _encode(expiry: KeyExpiry) -> bytes:
    fields = {
        "format": _FORMAT,
        "key": expiry.key,
        "version": str(expiry.version),
        "nonce": expiry.nonce,
        "until": expiry.until,
    }
    return json.dumps(fields).encode()


def _decode(record: StoredKey) -> KeyExpiry:
    """Return what *record* says.

    Raises:
        ValueError, TypeError, KeyError, RecursionError: It is no such record, or is that of another
            key.
    """
    fields = fields_of(record.value, _FORMAT)
    key = text(fields["key"])
    if _record_key(key) != record.key:
        raise ValueError(f"it is the record of another key, {key!r:.60}")
    version, nonce = parse_version(text(fields["version"])), text(fields["nonce"])
    return KeyExpiry(key, version, nonce, seconds(fields["until"]))
