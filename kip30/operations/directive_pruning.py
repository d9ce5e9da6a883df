"""Removing records of directives that ask nothing, of services that are no longer used."""

import math
import time

from kip30.errors import StoreError, UsageError
from kip30.operations.directory import CLAIMS, directory_of
from kip30.operations.key_deletion import delete_versions
from kip30.operations.key_scan import StoredKey, named_records
from kip30.operations.scanned_pages import StoreScan
from kip30.runtime import past_terms
from kip30.runtime.directives import NAMESPACE, Directives, decode_directives
from kip30.runtime.resolution import Configuration
from kip30.storage import Storage


def prune_directives(
    config: Configuration, storage: Storage[bytes], unused_seconds: float, *, dry_run: bool = False
) -> int:
    """Remove records of directives without an effect, of unused services; return how many.

    A service is unused if it has no leader and no candidate in its line, and its last directive and
    its last term that is noted are older than *unused_seconds*, by the clock of this machine. A
    record that is written meanwhile stays, as does one that cannot be read.

    Args:
        config: The store, which must be able to scan.
        storage: The same store.
        unused_seconds: How long a service must be unused, 0 or more.
        dry_run: Remove nothing, and count what would be removed.

    Raises:
        UsageError: *unused_seconds* is negative or no number. Nothing was removed.
        UnsupportedError: The store does not declare ``scanning`` or ``compare-and-set``. Nothing
            was removed.
        UnavailableError, OutcomeUnknownError: The store did not answer. Some may be removed.
        AuthenticationError, StoreError: The records could not be read, and nothing was removed; or
            some may not be removed, and all others are.
        Kip30Error: The records could not be read. Nothing was removed.
    """
    if not 0 <= unused_seconds < math.inf:
        raise UsageError(f"{unused_seconds!r} is not a number of seconds, 0 or more")
    now = time.time()
    with StoreScan(config) as scan:
        services = directory_of(scan.pages(CLAIMS), internal=True).services
        in_use = {one.service for one in services if one.is_led or one.waiting}
        directed = dict(named_records(scan, NAMESPACE, []))
        in_use |= {
            service
            for service, record in named_records(scan, past_terms.NAMESPACE, [])
            if service in directed and _last_term(service, record) > now - unused_seconds
        }
    due = [
        (record.key, record.version)
        for service, record in directed.items()
        if service not in in_use and _last_directive(service, record, now) <= now - unused_seconds
    ]
    if dry_run:
        return len(due)
    done = delete_versions(storage, due)
    for error in (done.error, *done.kept.values()):
        if error is not None:
            raise error
    return done.deleted


def _last_term(service: str, record: StoredKey) -> float:
    """Return when the last noted term began or ended; infinity if that cannot be read."""
    try:
        terms = past_terms.decode_past_terms(service, record.value)
    except StoreError:
        return math.inf
    return max((one.until or one.since for one in terms), default=-math.inf)


def _last_directive(service: str, record: StoredKey, now: float) -> float:
    """Return when the last directive was given; infinity if one has an effect, or is unreadable."""
    try:
        found = decode_directives(service, record.value)
    except StoreError:
        return math.inf
    return math.inf if _has_effect(found, now) else max((one.at for one in found.log), default=now)


def _has_effect(found: Directives, now: float) -> bool:
    pause, step_down = found.pause, found.step_down
    # For all clients, also those whose clocks differ.
    is_under_way = step_down is not None and now < step_down.until
    return is_under_way or (pause is not None and not pause.is_over(now))
