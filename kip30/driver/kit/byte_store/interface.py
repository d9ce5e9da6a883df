"""Interface of a store of bytes under keys to a backend, in blocking calls."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kip30.errors import DefiniteError


class LeaseGoneError(DefiniteError):
    """The store knows no such lease. Nothing was done."""


class StoredRecord(NamedTuple):
    """A record as the store has it.

    Attributes:
        key: Where it is.
        data: The data that was put there.
        created: The revision at which the key was put while it was absent.
        modified: The revision of the last put.
        lease: The lease that it ends with, if it has one.
    """

    key: str
    data: bytes
    created: int
    modified: int
    lease: str | None = None


class StorePosition(NamedTuple):
    """The position that a store had reached when it answered.

    Attributes:
        store: Names the data: a store that has lost it, and counts from scratch, is another one. It
            must change whenever revisions may be used again, as after a failover that lost writes.
        revision: Grows with every commit and every end of a lease, over all keys. Epochs, and the
        order in which members joined, are derived from it.
    """

    store: str
    revision: int


class RecordsAtPosition(NamedTuple):
    """Records as they were at one position."""

    position: StorePosition
    records: Sequence[StoredRecord]


class KeyCondition(NamedTuple):
    """Condition on a key: it *is_absent*, or it is there and has the values that are not None."""

    is_absent: bool = False
    created: int | None = None
    modified: int | None = None
    lease: str | None = None

    def holds(self, found: StoredRecord | None) -> bool:
        """Return whether it holds of the record *found*, for stores that decide in Python.

        The store must decide and write in one step.
        """
        if found is None or self.is_absent:
            return found is None and self.is_absent
        wanted = (self.created, self.modified, self.lease)
        there = (found.created, found.modified, found.lease)
        return all(one in (None, has) for one, has in zip(wanted, there, strict=True))


class Put(NamedTuple):
    """The *data* to put at a key, which ends with *lease* unless that is None."""

    data: bytes
    lease: str | None = None


class Commit(NamedTuple):
    """Puts and deletes, done if all *conditions* hold; otherwise nothing is done."""

    conditions: Mapping[str, KeyCondition]
    puts: Mapping[str, Put]
    deletes: Sequence[str]


class CommitOutcome(NamedTuple):
    """The outcome of a commit.

    Attributes:
        is_done: Whether all conditions held.
        found: The records at the keys of the conditions before it; absent keys are left out.
        position: After it. If it is done, its revision is that of the records it put.
    """

    is_done: bool
    found: Mapping[str, StoredRecord]
    position: StorePosition


class ByteStore(ABC):
    """Your store. Thread-safe; every method waits for the answer.

    Each must end by *until*, a time of `time.monotonic`, and raises only kip30's errors:

    * a `DefiniteError` only if nothing was done and nothing will be done: `UnavailableError` if the
      request was never sent, `AuthenticationError`, `StoreError`, or `LeaseGoneError`;
    * `OutcomeUnknownError` of a `commit` without an answer. Never send that again;
    * `UnavailableError` of anything else without an answer: it does no harm if it was done;
    * once the store is closed, `ClosedError` instead of `UnavailableError`.

    Reads see every write that was acknowledged before they began. Keys are paths of ASCII letters,
    digits and ``/=._-``; each name in them has up to 255 bytes.
    """

    @abstractmethod
    def get(self, keys: Sequence[str], until: float) -> RecordsAtPosition:
        """Return the records at *keys* as of one position; absent keys are left out."""

    @abstractmethod
    def find(self, prefix: str, until: float, *, keys_only: bool) -> RecordsAtPosition:
        """Return all records whose keys begin with *prefix*, as of one position.

        With *keys_only* their data is not looked at and may be empty: names are listed, and key
        sets observed, without the values.
        """

    @abstractmethod
    def commit(self, commits: Sequence[Commit], until: float) -> Sequence[CommitOutcome]:
        """Do each of *commits* by itself, in as few round trips as the store allows.

        The store decides and writes each in one step: no other client's write comes in between.
        Conditions come before leases. Deleting an absent key is no error. A commit that changes
        nothing may keep the last revision.

        A commit that puts something on a lease comes alone: no other is in *commits*.

        Raises:
            LeaseGoneError: One puts something on a lease that is not there. Nothing was done.
        """

    @abstractmethod
    def grant(self, seconds: float, until: float) -> str:
        """Return a new lease, which ends *seconds* after its last renewal, with its records."""

    @abstractmethod
    def renew(self, lease: str, until: float) -> bool:
        """Renew *lease*; false if it no longer exists.

        A majority of the servers must take part, if there are several: one that is cut off from
        them may renew what they have ended.
        """

    @abstractmethod
    def revoke(self, lease: str, until: float) -> None:
        """End *lease*, and remove its records. If it is not there, that is no error."""

    @abstractmethod
    def wait(self, after: StorePosition, seconds: float, until: float) -> StorePosition:
        """Return once the store is past *after*, or after *seconds*.

        Another `StorePosition.store` counts as further. The first *after* has an empty one and the
        revision 0: return the present position at once. A store that cannot tell sleeps for a while
        and returns; then say how long in `Limits.observe_seconds`. `close` must end it.
        """

    @abstractmethod
    def close(self) -> None:
        """End all requests under way, on whichever thread, and all connections. Idempotent."""
