"""Records: one key per key, whose version is the revision it was last written at.

A write is a transaction of comparisons and operations (`Place`). Many writes travel in few
transactions, and each is done or refused on its own. Creations by one fence, or by none, travel as
one flat transaction: if all keys are absent, it puts them, else it says which are there. Those are
refused, and the others follow in a second one. Other writes travel as a transaction of
transactions, which costs client and server several times as much.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit.following import gathered, whatever
from kip30.driver.kit.futures import Completed, fail, mapped, succeed
from kip30.driver.record_format import seal
from kip30.driver.records import Condition, Entry, Fence, NamePage, Version, Write
from kip30.errors import (
    DefiniteError,
    FencedError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)
from kip30.names import Key
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import TXN
from kip30_backends.etcd.client.messages import KeyValue, RangeAnswer, TxnAnswer, only
from kip30_backends.etcd.order import Mark
from kip30_backends.etcd.request import MAX_OPS, Ask, Calls
from kip30_backends.etcd.snapshots import States, leader_key, unsealed

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
        return messages.txn(self._compare(), self.success(), [*map(messages.look_up, looks)])

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
        return [] if fence is None else [messages.was_created(self.leader, _epoch(fence))]

    def success(self) -> list[Any]:
        """Return the operations that do the write."""
        if self.write.data is None:
            return [messages.look_up(self.key), messages.delete(self.key)]
        return [messages.put(self.key, seal(self.write.nonce, self.write.data))]

    def _compare(self) -> list[Any]:
        condition, compare = self.write.condition, self.fence()
        if isinstance(condition, Version):
            compare.append(messages.was_written(self.key, _revision(condition)))
        if condition is Condition.ABSENT:
            compare.append(messages.is_absent(self.key))
        if condition is Condition.PRESENT or self.write.data is None:
            compare.append(messages.is_present(self.key))
        return compare


def _revision(version: Version) -> int:
    """Return the revision to compare a key's with; to etcd, 0 would mean that there is no key."""
    return version.major if version.major > 0 and not version.minor else _NEVER


def _epoch(fence: Fence) -> int:
    """Return the revision to compare the leader's with; 0 would mean that there is no leader."""
    return fence.epoch if fence.epoch > 0 else _NEVER


_MOST = 100
"""How many writes in one transaction: what nested ones do counts against the same limit of 128."""

_MOST_BYTES = 1024 * 1024

_LEAST_SECONDS = 0.001

_Outcomes = list[Version | Exception]
_Alike = tuple[Fence | None] | None


def write_together(calls: Calls, places: Sequence[Place]) -> list[Future[Version]]:
    """Send all writes now, and return their answers in the order of *places*."""
    answers: dict[int, Future[Version]] = {}
    for alike, numbers in _by_kind(places).items():
        for part in _parts(places, numbers):
            writes = [places[number] for number in part]
            done = _nested(calls, writes) if alike is None else _created(calls, writes)
            answers |= zip(part, _each(done, len(part)), strict=True)
    return [answers[number] for number in range(len(places))]


def _by_kind(places: Sequence[Place]) -> dict[_Alike, list[int]]:
    """Return the numbers of all creations by fence, and of all other writes under None."""
    kinds = defaultdict[_Alike, list[int]](list)
    for number, place in enumerate(places):
        write = place.write
        creates = write.condition is Condition.ABSENT and write.data is not None
        kinds[(write.fence,) if creates else None].append(number)
    return kinds


def _parts(places: Sequence[Place], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Cut *numbers* into parts of which each fits into one transaction, with no key twice."""
    part, keys, size = list[int](), set[bytes](), 0
    for number in numbers:
        place = places[number]
        bytes_more = len(place.write.data or b"")
        full = len(part) == _MOST or size + bytes_more > _MOST_BYTES
        if part and (full or place.key in keys):
            yield part
            part, keys, size = list[int](), set[bytes](), 0
        part.append(number)
        keys.add(place.key)
        size += bytes_more
    if part:
        yield part


def _nested(
    calls: Calls, places: Sequence[Place], seconds: float | None = None
) -> Future[_Outcomes]:
    """Do writes in one transaction of transactions, each of which decides for itself."""
    request = messages.txn([], [messages.nested(place.transaction()) for place in places])
    ask = Ask(TXN, request, partial(_each_outcome, places), writes=True)
    return calls.send(ask, seconds)


def _each_outcome(places: Sequence[Place], answer: TxnAnswer, _sent: Mark) -> _Outcomes:
    revision = answer.header.revision
    pairs = zip(places, answer.responses, strict=True)
    return [_outcome(place, one.response_txn, revision) for place, one in pairs]


def _outcome(place: Place, answer: TxnAnswer, revision: int) -> Version | Exception:
    try:
        return place.version(answer, revision)
    except DefiniteError as refused:
        return refused


def _created(calls: Calls, places: Sequence[Place]) -> Future[_Outcomes]:
    """Create all keys, or those that are absent if some are there."""
    fence = places[0].fence()
    leader = [messages.look_up(places[0].leader)] if fence else []
    request = messages.txn(
        [*fence, *(messages.is_absent(place.key) for place in places)],
        [put for place in places for put in place.success()],
        [*leader, *(messages.look_up(place.key) for place in places)],
    )
    until = time.monotonic() + calls.seconds
    return calls.send(
        Ask(TXN, request, partial(_after_creation, calls, places, until), writes=True)
    )


def _after_creation(
    calls: Calls, places: Sequence[Place], until: float, answer: TxnAnswer, _sent: Mark
) -> _Outcomes | Future[_Outcomes]:
    """Return what became of each creation; those that nothing speaks against are sent again."""
    if answer.succeeded:
        return [Version(answer.header.revision) for _ in places]
    refusals = _refusals(places, answer)
    left = [place for place in places if place.key not in refusals]
    if not left:
        return [refusals[place.key] for place in places]
    seconds = max(_LEAST_SECONDS, until - time.monotonic())
    return whatever(_nested(calls, left, seconds), partial(_merged, places, left, refusals))


def _refusals(places: Sequence[Place], answer: TxnAnswer) -> dict[bytes, DefiniteError]:
    """Return why each of *places* is refused that is, given the answer that nothing was done."""
    found = [only(one.response_range) for one in answer.responses]
    leader = found.pop(0) if len(found) > len(places) else None
    reasons = {
        place.key: place.refusal(leader, record)
        for place, record in zip(places, found, strict=True)
    }
    # A creation is not refused because its key is missing: it was in the company of a refused one.
    return {key: why for key, why in reasons.items() if not isinstance(why, KeyMissingError)}


def _merged(
    places: Sequence[Place],
    left: Sequence[Place],
    refusals: dict[bytes, DefiniteError],
    done: Future[_Outcomes],
) -> Future[_Outcomes]:
    error = done.exception()
    second: _Outcomes = [error] * len(left) if isinstance(error, Exception) else done.result()
    outcomes = refusals | dict(zip((place.key for place in left), second, strict=True))
    return Completed([outcomes[place.key] for place in places])


def _each(done: Future[_Outcomes], count: int) -> list[Future[Version]]:
    """Return a future of each outcome; one callback for all costs half of one for each."""
    answers: list[Future[Version]] = [Future() for _ in range(count)]
    done.add_done_callback(partial(_deal, answers))
    return answers


def _deal(answers: Sequence[Future[Version]], done: Future[_Outcomes]) -> None:
    error = CancelledError() if done.cancelled() else done.exception()
    outcomes = [error] * len(answers) if error else done.result()
    for answer, outcome in zip(answers, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            fail(answer, outcome)
        else:
            succeed(answer, outcome)


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
        return write_together(self._calls, [self._place(write) for write in writes])

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        del limit  # the order of escaped names is another one, so a read brings all
        return mapped(self._states.names(namespace), partial(_page, after))

    def _read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        request = messages.txn([], [messages.find(self._key(key)) for key in keys])
        return self._calls.send(Ask(TXN, request, _entries))

    def _version(self, place: Place, answer: TxnAnswer, _sent: Mark) -> Version:
        return place.version(answer, answer.header.revision)

    def _place(self, write: Write) -> Place:
        leader = leader_key(self._paths, write.fence.service) if write.fence else b""
        return Place(write, self._key(write.key), leader)

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


def _entries(answer: TxnAnswer, _sent: Mark) -> list[Entry | None]:
    return [_entry_of(one.response_range) for one in answer.responses]


def _joined(parts: list[list[Entry | None]]) -> list[Entry | None]:
    return [entry for part in parts for entry in part]


def _page(after: str, names: Sequence[str]) -> NamePage:
    # The order of code points is that of UTF-8.
    return NamePage(sorted(name for name in names if name > after), is_last=True)
