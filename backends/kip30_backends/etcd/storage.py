"""Records: one key per key, whose version is the revision it was last written at."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.envelope import seal, unseal
from kip30.errors import (
    FencedError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)
from kip30.following import gathered
from kip30.futures import mapped
from kip30.names import Key
from kip30.paths import Paths
from kip30.records import Condition, Entry, Fence, Kind, Target, Version, Write
from kip30_backends.etcd import requests
from kip30_backends.etcd.batches import MAX_OPS
from kip30_backends.etcd.call import Ask
from kip30_backends.etcd.calls import Calls
from kip30_backends.etcd.channel import TXN
from kip30_backends.etcd.election import leader_key
from kip30_backends.etcd.messages import KeyValue, RangeAnswer, TxnAnswer
from kip30_backends.etcd.orders import Mark
from kip30_backends.etcd.states import States

_MAX_NESTED = 100
"""How many transactions in one: what they do themselves counts against the same limit."""

_MAX_BYTES = 1024 * 1024

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
        return requests.txn(self._compare(), self._success(), [*map(requests.look_up, looks)])

    def version(self, answer: TxnAnswer, revision: int) -> Version:
        """Return the version that *answer*, of *revision*, tells of.

        Raises:
            DefiniteError: The write was refused.
        """
        if not answer.succeeded:
            self._explain([_only(one.response_range) for one in answer.responses])
        if self.write.data is not None:
            return Version(revision)
        return Version(answer.responses[0].response_range.kvs[0].mod_revision)

    def _compare(self) -> list[Any]:
        fence, condition = self.write.fence, self.write.condition
        compare = [] if fence is None else [requests.was_created(self.leader, _epoch(fence))]
        if isinstance(condition, Version):
            compare.append(requests.was_written(self.key, _revision(condition)))
        if condition is Condition.ABSENT:
            compare.append(requests.is_absent(self.key))
        if condition is Condition.PRESENT or self.write.data is None:
            compare.append(requests.is_present(self.key))
        return compare

    def _success(self) -> list[Any]:
        if self.write.data is None:
            return [requests.look_up(self.key), requests.delete(self.key)]
        return [requests.put(self.key, seal(self.write.nonce, self.write.data))]

    def _explain(self, found: list[KeyValue | None]) -> None:
        """Raise why a write was refused, given what is at the places `transaction` looks at."""
        *leader, record = found
        fence, key = self.write.fence, str(self.write.key)
        if fence is not None and (leader[0] is None or leader[0].create_revision != fence.epoch):
            raise FencedError(
                f"epoch {fence.epoch} is not the newest of {fence.service!r}, or is over"
            )
        if record is None:
            raise KeyMissingError(f"there is no key {key!r}")
        if self.write.condition is Condition.ABSENT:
            raise KeyExistsError(f"{key!r} is there already")
        raise VersionConflictError(
            f"{key!r} has version {record.mod_revision}, not {self.write.condition}"
        )


def _revision(version: Version) -> int:
    """Return the revision to compare a key's with; to etcd, 0 would mean that there is no key."""
    return version.major if version.major > 0 and not version.minor else _NEVER


def _epoch(fence: Fence) -> int:
    """Return the revision to compare the leader's with; 0 would mean that there is no leader."""
    return fence.epoch if fence.epoch > 0 else _NEVER


class EtcdStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, paths: Paths, calls: Calls, states: States) -> None:
        """Keep records where *paths* places them."""
        self._paths = paths
        self._calls = calls
        self._states = states

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        if len(keys) == 1:
            return self._calls.batch(self._key(keys[0]), _entry)
        parts = [keys[at : at + MAX_OPS] for at in range(0, len(keys), MAX_OPS)]
        return mapped(gathered([self._read(part) for part in parts]), _joined)

    @override
    def write(self, write: Write) -> Future[Version]:
        place = self._place(write)
        ask = Ask(TXN, place.transaction(), partial(self._version, place), writes=True)
        return self._calls.on_demand(ask)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        answers: list[Future[Version]] = []
        for part in _parts(writes):
            answers += self._write_together([self._place(write) for write in part])
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[list[str]]:
        listed = self._states.read(Target(Kind.NAMESPACE, namespace))
        return mapped(listed, lambda state: _names(state.entries, after.encode(), limit))

    def _read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        request = requests.txn([], [requests.find(self._key(key)) for key in keys])
        return self._calls.send(Ask(TXN, request, _entries))

    def _write_together(self, places: Sequence[Place]) -> list[Future[Version]]:
        """Do writes in one transaction of transactions, each of which decides for itself."""
        request = requests.txn([], [requests.nested(place.transaction()) for place in places])
        done = self._calls.send(Ask(TXN, request, _whole, writes=True))
        return [mapped(done, partial(_nth, place, number)) for number, place in enumerate(places)]

    def _version(self, place: Place, answer: TxnAnswer, _sent: Mark) -> Version:
        return place.version(answer, answer.header.revision)

    def _place(self, write: Write) -> Place:
        leader = leader_key(self._paths, write.fence.service) if write.fence else b""
        return Place(write, self._key(write.key), leader)

    def _key(self, key: Key) -> bytes:
        return self._paths.value(key).encode()


def _parts(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Cut *writes* into parts of which each fits into one transaction, with no key twice."""
    part: list[Write] = []
    size = 0
    for write in writes:
        bytes_more = len(write.data or b"")
        full = len(part) == _MAX_NESTED or size + bytes_more > _MAX_BYTES
        if part and (full or any(write.key == other.key for other in part)):
            yield part
            part, size = [], 0
        part.append(write)
        size += bytes_more
    if part:
        yield part


def _only(answer: RangeAnswer) -> KeyValue | None:
    return answer.kvs[0] if answer.kvs else None


def _entry_of(answer: RangeAnswer) -> Entry | None:
    found = _only(answer)
    if found is None:
        return None
    nonce, _, data = unseal(found.value, found.key.decode("ascii", "backslashreplace"))
    return Entry(Version(found.mod_revision), nonce, data)


def _entry(answer: RangeAnswer) -> list[Entry | None]:
    return [_entry_of(answer)]


def _entries(answer: TxnAnswer, _sent: Mark) -> list[Entry | None]:
    return [_entry_of(one.response_range) for one in answer.responses]


def _whole(answer: TxnAnswer, _sent: Mark) -> TxnAnswer:
    return answer


def _joined(parts: list[list[Entry | None]]) -> list[Entry | None]:
    return [entry for part in parts for entry in part]


def _nth(place: Place, number: int, answer: TxnAnswer) -> Version:
    return place.version(answer.responses[number].response_txn, answer.header.revision)


def _names(entries: Any, after: bytes, limit: int) -> list[str]:
    later = sorted(name for name in map(str.encode, entries) if name > after)
    return [name.decode() for name in later[:limit]]
