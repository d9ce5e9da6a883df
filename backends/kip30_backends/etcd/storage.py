"""Records: one key per key, whose version is the revision it was last written at.

A write is a transaction of comparisons and operations (`KeyedWrite`). Many writes travel in few
transactions, and each is done or refused on its own. Creations by the same fence and guards, or by
none, travel as one flat transaction: if all keys are absent, it puts them, otherwise it returns
which exist. Those are refused, and the others follow in a second one. Other writes travel as a
transaction of transactions, which costs client and server several times as much.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit import refusals
from kip30.driver.kit.batch_splitting import parts
from kip30.driver.kit.futures import each, gathered, mapped
from kip30.driver.kit.operation import Steps, begun
from kip30.driver.kit.record_paths import last_page
from kip30.driver.kit.time_left import seconds_left
from kip30.driver.record_format import seal
from kip30.driver.records import Condition, Entry, Fence, Guard, NamePage, Version, Write
from kip30.errors import (
    DefiniteError,
    KeyMissingError,
)
from kip30.names import Key
from kip30_backends.etcd.calls import MAX_OPS, Calls, TypedRequest, itself
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import TXN
from kip30_backends.etcd.client.messages import KeyValue, RangeAnswer, TxnAnswer, only
from kip30_backends.etcd.observation_order import OrderMark
from kip30_backends.etcd.target_states import TargetStates, leader_key, unsealed

_NEVER = -1
"""A revision that no key has, present or absent."""


class KeyedWrite(NamedTuple):
    """A write, its key, and the keys of the leader whose epoch fences it and of its guards."""

    write: Write
    key: bytes
    leader: bytes
    guards: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """The most bytes of a transaction that its value and the keys take."""
        above = len(self.leader) + sum(map(len, self.guards))
        return len(self.write.data or b"") + 5 * len(self.key) + 2 * above

    def transaction(self) -> Any:
        """Return the transaction that does the write, or reads why it is refused."""
        looks = [*self.above(), self.key]
        return messages.txn(self._compare(), self.success(), [*map(messages.look_up, looks)])

    def version(self, answer: TxnAnswer, revision: int) -> Version:
        """Return the version from *answer*, of *revision*.

        Raises:
            DefiniteError: The write was refused.
        """
        if not answer.succeeded:
            *above, record = [only(one.response_range) for one in answer.responses]
            raise self.refusal(above, record)
        if self.write.data is not None:
            return Version(revision)
        return Version(answer.responses[0].response_range.kvs[0].mod_revision)

    def above(self) -> list[bytes]:
        """Return the keys of the leader and of the guards that the write has."""
        return [self.leader, *self.guards] if self.write.fence else [*self.guards]

    def refusal(self, above: Sequence[KeyValue | None], record: KeyValue | None) -> DefiniteError:
        """Return why the write was refused while *record* was at its key, and *above* at those."""
        fence, guards = self.write.fence, above
        if fence is not None:
            leader, *guards = above
            if leader is None or leader.create_revision != fence.epoch:
                return refusals.fenced(fence)
        if guards:
            keys = [guard.key for guard in self.write.guards]
            found = dict(zip(keys, map(_version, guards), strict=True))
            unmet = refusals.unmet_guard(self.write, found.get)
            if unmet is not None:
                return unmet
        return refusals.refused(self.write, _version(record))

    def checks(self) -> list[Any]:
        """Return the comparisons that the write's fence and guards require."""
        fence = self.write.fence
        checks = [] if fence is None else [messages.was_created(self.leader, _epoch(fence))]
        for key, guard in zip(self.guards, self.write.guards, strict=True):
            checks.append(messages.was_written(key, _revision(guard.version)))
        return checks

    def success(self) -> list[Any]:
        """Return the operations that do the write."""
        if self.write.data is None:
            return [messages.look_up(self.key), messages.delete(self.key)]
        return [messages.put(self.key, seal(self.write.nonce, self.write.data))]

    def _compare(self) -> list[Any]:
        condition, compare = self.write.condition, self.checks()
        if isinstance(condition, Version):
            compare.append(messages.was_written(self.key, _revision(condition)))
        if condition is Condition.ABSENT:
            compare.append(messages.is_absent(self.key))
        if condition is Condition.PRESENT or self.write.data is None:
            compare.append(messages.is_present(self.key))
        return compare


def _version(found: KeyValue | None) -> Version | None:
    return None if found is None else Version(found.mod_revision)


def _revision(version: Version) -> int:
    """Return the revision to compare a key's with; to etcd, 0 would mean that there is no key."""
    return version.major if version.major > 0 and not version.minor else _NEVER


def _epoch(fence: Fence) -> int:
    """Return the revision to compare the leader's with; 0 would mean that there is no leader."""
    return fence.epoch if fence.epoch > 0 else _NEVER


_MOST = 100
"""Number of writes in one transaction, which may have 128 comparisons or operations.

What a nested one has, with its fence and guards, counts against the same limit.
"""

_MOST_BYTES = 1024 * 1024

_Outcomes = list[Version | Exception]
_Alike = tuple[Fence | None, tuple[Guard, ...]] | None


def write_together(calls: Calls, places: Sequence[KeyedWrite]) -> list[Future[Version]]:
    """Send all writes now, and return their answers in the order of *places*."""
    answers: dict[int, Future[Version]] = {}
    for alike, numbers in _by_kind(places).items():
        for part in _parts(places, numbers):
            writes = [places[number] for number in part]
            done = _nested(calls, writes) if alike is None else begun(_created(calls, writes))
            answers |= zip(part, each(done, len(part)), strict=True)
    return [answers[number] for number in range(len(places))]


def _by_kind(places: Sequence[KeyedWrite]) -> dict[_Alike, list[int]]:
    """Return the numbers of creations by fence and guards, and of all other writes under None."""
    kinds = defaultdict[_Alike, list[int]](list)
    for number, place in enumerate(places):
        write = place.write
        creates = write.condition is Condition.ABSENT and write.data is not None
        kinds[(write.fence, write.guards) if creates else None].append(number)
    return kinds


def _parts(places: Sequence[KeyedWrite], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Cut *numbers* into parts of which each fits into one transaction, with no key twice.

    A key that is written guards nothing in the same part: etcd makes all comparisons of a
    transaction before it writes, so two writes could each miss what the other one does.
    """

    def size(number: int) -> int:
        return places[number].size

    def key(number: int) -> bytes:
        return places[number].key

    def guards(number: int) -> tuple[bytes, ...]:
        return places[number].guards

    return parts(numbers, size, most=_MOST, most_bytes=_MOST_BYTES, key=key, guards=guards)


def _nested(
    calls: Calls, places: Sequence[KeyedWrite], seconds: float | None = None
) -> Future[_Outcomes]:
    """Do writes in one transaction of transactions, each with its own comparisons."""
    request = messages.txn([], [messages.nested(place.transaction()) for place in places])
    ask = TypedRequest(TXN, request, partial(_each_outcome, places), writes=True)
    return calls.send(ask, seconds)


def _each_outcome(places: Sequence[KeyedWrite], answer: TxnAnswer, _sent: OrderMark) -> _Outcomes:
    revision = answer.header.revision
    pairs = zip(places, answer.responses, strict=True)
    return [_outcome(place, one.response_txn, revision) for place, one in pairs]


def _outcome(place: KeyedWrite, answer: TxnAnswer, revision: int) -> Version | Exception:
    try:
        return place.version(answer, revision)
    except DefiniteError as refused:
        return refused


def _created(calls: Calls, places: Sequence[KeyedWrite]) -> Steps[_Outcomes]:
    """Create all keys; if some exist, those that nothing refuses are sent again."""
    until = time.monotonic() + calls.seconds
    keys = [place.key for place in places]
    request = messages.txn(
        [*places[0].checks(), *map(messages.is_absent, keys)],
        [put for place in places for put in place.success()],
        [*map(messages.look_up, [*places[0].above(), *keys])],
    )
    answer: TxnAnswer = yield calls.send(TypedRequest(TXN, request, itself, writes=True))
    if answer.succeeded:
        return [Version(answer.header.revision) for _ in places]
    outcomes: dict[bytes, Version | Exception] = {**_refusals(places, answer)}
    left = [place for place in places if place.key not in outcomes]
    if left:
        try:
            second: _Outcomes = yield _nested(calls, left, seconds_left(until))
        except Exception as error:  # noqa: BLE001  that of some writes, and not of those refused
            second = [error] * len(left)
        outcomes |= zip((place.key for place in left), second, strict=True)
    return [outcomes[place.key] for place in places]


def _refusals(places: Sequence[KeyedWrite], answer: TxnAnswer) -> dict[bytes, DefiniteError]:
    """Return why some of *places* are refused, given the answer that nothing was done."""
    found = [only(one.response_range) for one in answer.responses]
    above, records = found[: -len(places)], found[-len(places) :]
    reasons = {
        place.key: place.refusal(above, record)
        for place, record in zip(places, records, strict=True)
    }
    # A creation is not refused because its key is missing: it travelled with a refused one.
    return {key: why for key, why in reasons.items() if not isinstance(why, KeyMissingError)}


class EtcdStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, paths: Paths, calls: Calls, states: TargetStates) -> None:
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
        ask = TypedRequest(TXN, place.transaction(), partial(self._version, place), writes=True)
        return self._calls.on_demand(ask)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        return write_together(self._calls, [self._place(write) for write in writes])

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        del limit  # escaped names have another order, so a read returns all
        return mapped(self._states.names(namespace), partial(last_page, after=after))

    def _read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        request = messages.txn([], [messages.find(self._key(key)) for key in keys])
        return self._calls.send(TypedRequest(TXN, request, _entries))

    def _version(self, place: KeyedWrite, answer: TxnAnswer, _sent: OrderMark) -> Version:
        return place.version(answer, answer.header.revision)

    def _place(self, write: Write) -> KeyedWrite:
        leader = leader_key(self._paths, write.fence.service) if write.fence else b""
        guards = tuple(self._key(guard.key) for guard in write.guards) if write.guards else ()
        return KeyedWrite(write, self._key(write.key), leader, guards)

    def _key(self, key: Key) -> bytes:
        return self._paths.value(key).encode()


def _entry_of(answer: RangeAnswer) -> Entry | None:
    found = only(answer)
    if found is None:
        return None
    nonce, _, data = unsealed(found)
    return Entry(Version(found.mod_revision), nonce, data)


def _entry(answer: RangeAnswer) -> list[Entry | None]:
    return [_entry_of(answer)]


def _entries(answer: TxnAnswer, _sent: OrderMark) -> list[Entry | None]:
    return [_entry_of(one.response_range) for one in answer.responses]


def _joined(parts: list[list[Entry | None]]) -> list[Entry | None]:
    return [entry for part in parts for entry in part]
