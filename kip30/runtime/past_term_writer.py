"""Notes the terms of one campaign in the record of its service, behind its elections."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from kip30.driver import Capability
from kip30.driver.kit.futures import succeed
from kip30.driver.kit.retry import Retry
from kip30.driver.records import Condition, Write, new_nonce
from kip30.errors import (
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    VersionConflictError,
)
from kip30.names import Key
from kip30.runtime.candidacy import Leadership
from kip30.runtime.json_records import key_unless_internal
from kip30.runtime.lost_answers import write_and_settle
from kip30.runtime.open_store import OpenStore
from kip30.runtime.past_terms import (
    PastTerm,
    decode_past_terms,
    encode_past_terms,
    past_terms_key,
    with_terms,
)

log: logging.Logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Number of attempts after which a note is given up, if the store answers: nothing depends on it.
"""

_OUTAGE_SECONDS = 3_600.0
"""Seconds after which it is given up if the store does not: the ends of terms that an outage ended
are those that operators look for."""

_PAUSE_SECONDS = 10.0
"""Seconds between two attempts in an outage, after the first ones."""


class PastTermWriter:
    """Notes terms, if the client takes part in operations. Thread-safe; never blocks its callers.

    It notes nothing for kip30's own services, such as locks, for a service whose name is too long
    for a key, and on a store without ``compare-and-set``.
    """

    def __init__(self, store: OpenStore, service: str) -> None:
        """Write nothing yet."""
        self._store = store
        self._service = service
        self._key = _key(store, service)
        self._lock = threading.Lock()
        # What is not written yet, by the id of the term. Guarded by the lock, as all below.
        self._pending: dict[str, PastTerm] = {}
        # The terms that began here and have not ended, by id.
        self._present: dict[str, PastTerm] = {}
        # Done when nothing is pending: the close of the store waits for it.
        self._written: Future[None] | None = None
        self._failures = 0
        # Since when the store has not answered, on the clock; infinite if it has.
        self._away_since = math.inf
        self._retry = Retry(store.context.clock)
        self._task = store.dispatcher.task(
            self._write, f"terms of {service!r}", waits_for_store=True
        )

    def began(self, term: Leadership) -> None:
        """Note that *term* has begun."""
        if self._key is None:
            return
        nonce = term.claim.entry.nonce
        noted = PastTerm(nonce, term.epoch, term.candidate, term.since)
        with self._lock:
            self._present[nonce] = noted
        self._note(noted)

    def ended(self, term: Leadership, reason: str) -> None:
        """Note that *term*, which began here, has ended."""
        with self._lock:
            noted = self._present.pop(term.claim.entry.nonce, None)
        if noted is not None:
            self._note(noted._replace(until=time.time(), ended=reason))

    def _note(self, noted: PastTerm) -> None:
        with self._lock:
            self._pending[noted.id] = noted
            if self._written is None:
                self._written = self._store.last_write()
        self._task.wake()

    def _write(self) -> None:
        with self._lock:
            pending = list(self._pending.values())
        if not pending:
            return
        try:
            self._add(pending)
        except Kip30Error as error:
            due = self._next_attempt(error)
            if due is not None:
                self._task.wake_at(due)
                return
            log.warning("%d terms of %r are not noted: %s", len(pending), self._service, error)
        self._failures, self._away_since = 0, math.inf
        self._retry.succeeded()
        self._forget(pending)

    def _next_attempt(self, error: Kip30Error) -> float | None:
        """Return when to try again after *error*, on the clock; None: never."""
        now = self._store.context.clock.now()
        self._failures += 1
        if self._failures < _ATTEMPTS and not isinstance(error, StoreError):
            self._retry.failed()
            return self._retry.due
        if not isinstance(error, UnavailableError | OutcomeUnknownError):
            return None
        self._away_since = min(self._away_since, now)
        return now + _PAUSE_SECONDS if now < self._away_since + _OUTAGE_SECONDS else None

    def _add(self, noted: Sequence[PastTerm]) -> None:
        """Add *noted* to the record.

        Raises:
            StoreError: The record cannot be read. It stays.
            Kip30Error: The store does not answer, or others write all the time.
        """
        key = self._key
        if key is None:
            return
        driver, wait = self._store.drivers.storage, self._store.asking()
        for _ in range(_ATTEMPTS):
            entry = wait(driver.read((key,)))[0]
            known = () if entry is None else decode_past_terms(self._service, entry.data)
            data = encode_past_terms(with_terms(known, noted))
            condition = Condition.ABSENT if entry is None else entry.version
            try:
                write_and_settle(driver, Write(key, new_nonce(), data, condition), wait)
            except (KeyExistsError, KeyMissingError, VersionConflictError):
                continue
            return
        raise UnavailableError("other leaders write it at the same time")

    def _forget(self, written: Sequence[PastTerm]) -> None:
        """Forget what was *written*, unless it has changed since."""
        with self._lock:
            for one in written:
                if self._pending.get(one.id) == one:
                    del self._pending[one.id]
            done = None if self._pending else self._written
            if done is not None:
                self._written = None
        if done is not None:
            succeed(done, None)
        else:
            self._task.wake()


def _key(store: OpenStore, service: str) -> Key | None:
    """Return the key of the record; None if there is none for *service*."""
    is_possible = Capability.COMPARE_AND_SET in store.backend.capabilities
    if not (store.obeys_directives and is_possible):
        return None
    return key_unless_internal(service, past_terms_key)
