"""Settles a write whose answer was lost: the nonce in the record shows what happened.

A write is never simply repeated: the retry could conflict with its own first success and report a
false conflict. The record is read again instead:

* It carries the write's nonce: the write happened.
* The record still has the version that the write expected: repeating the *same* write, with its
  nonce, fence and guards, is safe. If the first one arrives late after all, only one of the two
  finds that version, because a version never comes back. (That a key is absent proves nothing of
  the sort: it may have been created, seen, and deleted.)
* A write without a condition (`Storage.set`) is never sent a second time. If its nonce is not in
  the record, it may have been applied and then replaced by another client, whose newer value the
  repetition would overwrite; or it may still be on its way.
* Anything else looks the same as "written, then overwritten": it stays unknown.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from kip30.driver import StorageDriver
from kip30.driver.lease import Lease
from kip30.driver.records import Entry, Version, Write
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    DefiniteError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)

T = TypeVar("T")

_ATTEMPTS = 3
_LOOKUP_FAILURES = (UnavailableError, ClosedError, StoreError, AuthenticationError)


class Wait(Protocol):
    """Waits for a driver's answers, all by the deadline of one call."""

    def __call__(self, future: Future[T]) -> T:
        """Return the result, or raise one of kip30's errors."""
        ...

    def is_over(self) -> bool:
        """Return whether the deadline has passed."""
        ...


def insist(ask: Callable[[], T], wait: Wait, attempts: int = _ATTEMPTS) -> T:
    """Retry an idempotent request (same nonce) while its outcome is unknown.

    Raises:
        OutcomeUnknownError: It still is. A refused retry says nothing about the first request.
    """
    try:
        return ask()
    except OutcomeUnknownError as lost:
        if attempts == 1 or wait.is_over():
            raise
        try:
            return insist(ask, wait, attempts - 1)
        except _LOOKUP_FAILURES as error:
            raise lost from error


def given_back(release: Callable[[], object], lease: Lease) -> bool:
    """Release a claim under *lease*; false if that is not confirmed, but the lease has ended.

    Raises:
        Kip30Error: It is not confirmed, and the lease has not ended.
    """
    try:
        release()
    except Kip30Error:
        if lease.is_valid():
            raise
        return False
    return True


def write_and_settle(driver: StorageDriver, write: Write, wait: Wait) -> Version:
    """Write once, and find out what happened if the answer is lost.

    Raises:
        OutcomeUnknownError: The record does not show it, or the store does not answer.
        DefiniteError: Nothing was written.
    """
    try:
        return wait(driver.write(write))
    except OutcomeUnknownError as error:
        return settle(driver, write, wait, error)


def settle(driver: StorageDriver, write: Write, wait: Wait, error: OutcomeUnknownError) -> Version:
    """Settle *write*, whose answer was lost with *error*.

    Raises:
        OutcomeUnknownError: The record does not show it, or the store does not answer.
    """
    if wait.is_over():
        raise error  # without a read: it could not end in time
    for _ in range(_ATTEMPTS):
        entry = _read(driver, write, wait, error)
        if entry is not None and entry.nonce == write.nonce:
            return entry.version
        if not _may_repeat(write, entry):
            break
        # The first write, arriving late, may have caused a refusal: the next read shows it.
        with contextlib.suppress(OutcomeUnknownError, DefiniteError):
            return wait(driver.write(write))
        if wait.is_over():
            break
    raise OutcomeUnknownError(
        f"the outcome of a write of {str(write.key)!r} is unknown, and the record does not show it"
        f" ({error}): read the key before trying again"
    ) from error


def _read(
    driver: StorageDriver, write: Write, wait: Wait, error: OutcomeUnknownError
) -> Entry | None:
    try:
        return wait(driver.read((write.key,)))[0]
    except Kip30Error as failure:
        raise OutcomeUnknownError(
            f"the answer to a write of {str(write.key)!r} was lost, and reading the record failed,"
            f" too ({failure}): read the key before trying again"
        ) from error


def _may_repeat(write: Write, entry: Entry | None) -> bool:
    return (
        isinstance(write.condition, Version)
        and entry is not None
        and (entry.version == write.condition)
    )
