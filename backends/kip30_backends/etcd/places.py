"""A write as etcd sees it: comparisons, operations, and what the answers mean."""

from typing import Any, NamedTuple

from kip30.driver.record_format import seal
from kip30.driver.records import Condition, Fence, Version, Write
from kip30.errors import (
    DefiniteError,
    FencedError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)
from kip30_backends.etcd import requests
from kip30_backends.etcd.messages import KeyValue, TxnAnswer, only

_NEVER = -1
"""A revision that no key has, present or absent."""


class Place(NamedTuple):
    """A write, its key, and the key of the leader whose epoch fences it."""

    write: Write
    key: bytes
    leader: bytes

    def transaction(self) -> Any:
        """Return the transaction that does the write, or finds out why not."""
        looks = [self.leader, self.key] if self.write.fence else [self.key]
        return requests.txn(self._compare(), self.success(), [*map(requests.look_up, looks)])

    def version(self, answer: TxnAnswer, revision: int) -> Version:
        """Return the version that *answer*, of *revision*, tells of.

        Raises:
            DefiniteError: The write was refused.
        """
        if not answer.succeeded:
            *leader, record = [only(one.response_range) for one in answer.responses]
            raise self.refusal(leader[0] if leader else None, record)
        if self.write.data is not None:
            return Version(revision)
        return Version(answer.responses[0].response_range.kvs[0].mod_revision)

    def refusal(self, leader: KeyValue | None, record: KeyValue | None) -> DefiniteError:
        """Return why the write was refused while *record* was at its key, and *leader* led."""
        fence, key = self.write.fence, str(self.write.key)
        if fence is not None and (leader is None or leader.create_revision != fence.epoch):
            return FencedError(
                f"epoch {fence.epoch} is not the newest of {fence.service!r}, or is over"
            )
        if record is None:
            return KeyMissingError(f"there is no key {key!r}")
        if self.write.condition is Condition.ABSENT:
            return KeyExistsError(f"{key!r} is there already")
        return VersionConflictError(
            f"{key!r} has version {record.mod_revision}, not {self.write.condition}"
        )

    def fence(self) -> list[Any]:
        """Return the comparison that the write's fence asks for, if it has one."""
        fence = self.write.fence
        return [] if fence is None else [requests.was_created(self.leader, _epoch(fence))]

    def success(self) -> list[Any]:
        """Return the operations that do the write."""
        if self.write.data is None:
            return [requests.look_up(self.key), requests.delete(self.key)]
        return [requests.put(self.key, seal(self.write.nonce, self.write.data))]

    def _compare(self) -> list[Any]:
        condition, compare = self.write.condition, self.fence()
        if isinstance(condition, Version):
            compare.append(requests.was_written(self.key, _revision(condition)))
        if condition is Condition.ABSENT:
            compare.append(requests.is_absent(self.key))
        if condition is Condition.PRESENT or self.write.data is None:
            compare.append(requests.is_present(self.key))
        return compare


def _revision(version: Version) -> int:
    """Return the revision to compare a key's with; to etcd, 0 would mean that there is no key."""
    return version.major if version.major > 0 and not version.minor else _NEVER


def _epoch(fence: Fence) -> int:
    """Return the revision to compare the leader's with; 0 would mean that there is no leader."""
    return fence.epoch if fence.epoch > 0 else _NEVER
