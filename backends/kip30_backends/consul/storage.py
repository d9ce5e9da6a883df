"""Records: one key per key, whose version is the index of its last write."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit import refusals
from kip30.driver.kit.batch_splitting import parts
from kip30.driver.kit.futures import each
from kip30.driver.kit.record_paths import last_page
from kip30.driver.record_format import seal
from kip30.driver.records import Condition, Entry, Kind, NamePage, Target, Version, Write
from kip30.errors import (
    DefiniteError,
)
from kip30.names import Key
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.operation_requests import OperationRequests
from kip30_backends.consul.election import leader_key
from kip30_backends.consul.target_states import TargetStates
from kip30_backends.consul.transactions import KVPair, entry_of, key_of

_BYTES_BESIDES = 2048
"""The bytes of a transaction that one write needs besides its value, with the longest names."""

_ABSENT = "doesn't exist"

_NEVER = 0
"""An index that no key was ever modified at."""


class KeyedWrite(NamedTuple):
    """A write, its key, and the keys of the leader whose epoch fences it and of its guards."""

    write: Write
    key: str
    leader: str
    guards: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """Number of operations of a transaction that this takes."""
        condition, fenced = self.write.condition, self.write.fence is not None
        bare = self.write.data is not None and condition in {Condition.ABSENT, Condition.ANY}
        return fenced + len(self.guards) + (1 if bare else 2)

    @property
    def size(self) -> int:
        """The most bytes of a transaction that this takes."""
        return _BYTES_BESIDES + len(self.write.data or b"") * 4 // 3

    def operations(self) -> list[transactions.Operation]:
        """Return the operations that do the write in a transaction, or refuse it."""
        fence, operations = self.write.fence, list[transactions.Operation]()
        if fence is not None:
            operations.append(transactions.was_modified(self.leader, _index(fence.epoch)))
        for key, guard in zip(self.guards, self.write.guards, strict=True):
            operations.append(_at_version(key, guard.version))
        return [*operations, *self._operations()]

    def version(self, records: Sequence[KVPair]) -> Version:
        """Return the version from the answer to the transaction."""
        condition = self.write.condition
        written = [one for one in records if one.key == self.key]
        if self.write.data is not None:
            return Version(written[-1].modified)
        return condition if isinstance(condition, Version) else Version(written[0].modified)

    def refusal(self, said: dict[int, str]) -> DefiniteError:
        """Return why the write was refused, given what was *said* of its operations."""
        fence, condition, key = self.write.fence, self.write.condition, self.write.key
        if fence is not None and 0 in said:
            return refusals.fenced(fence)
        for number, guard in enumerate(self.write.guards, fence is not None):
            if number in said:
                return refusals.stale_guard(guard)
        if condition is Condition.ABSENT and self.write.data is not None:
            return refusals.key_exists(key)
        if isinstance(condition, Version) and not any(_ABSENT in one for one in said.values()):
            return refusals.version_conflict(key, condition)
        return refusals.key_missing(key)

    def _operations(self) -> list[transactions.Operation]:
        condition, key = self.write.condition, self.key
        if self.write.data is None:
            return [self._presence(), transactions.delete(key)]
        sealed = seal(self.write.nonce, self.write.data)
        if condition is Condition.ABSENT:
            return [transactions.put_over(key, sealed, 0)]
        if condition is Condition.ANY:
            return [transactions.put(key, sealed)]
        return [self._presence(), transactions.put(key, sealed)]

    def _presence(self) -> transactions.Operation:
        """Refuse unless the key is there, in the expected version if there is one."""
        if isinstance(self.write.condition, Version):
            return _at_version(self.key, self.write.condition)
        return transactions.get(self.key)


def _at_version(key: str, version: Version) -> transactions.Operation:
    return transactions.was_modified(key, _NEVER if version.minor else _index(version.major))


def _index(number: int) -> int:
    """Return the index to compare with: Consul does not take a negative one."""
    return max(number, _NEVER)


class ConsulStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, paths: Paths, calls: Calls, states: TargetStates) -> None:
        """Keep records where *paths* places them."""
        self._paths = paths
        self._calls = calls
        self._states = states

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        if len(keys) == 1:
            return self._calls.batch(self._key(keys[0]))
        return self._calls.on_demand(partial(_read, [self._key(key) for key in keys]))

    @override
    def write(self, write: Write) -> Future[Version]:
        return self._calls.on_demand(partial(_write, self._place(write)))

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        answers: list[Future[Version]] = []
        for part in _parts([*map(self._place, writes)]):
            answers += each(self._calls.begin(partial(_write_each, part)), len(part))
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        del limit  # a read returns all names
        place = self._states.place(Target(Kind.NAMESPACE, namespace))
        return self._calls.on_demand(
            lambda requests: last_page(self._states.look(place, requests)[1].entries, after)
        )

    def _place(self, write: Write) -> KeyedWrite:
        leader = leader_key(self._paths, write.fence.service) if write.fence else ""
        guards = tuple(self._key(guard.key) for guard in write.guards) if write.guards else ()
        return KeyedWrite(write, self._key(write.key), leader, guards)

    def _key(self, key: Key) -> str:
        return key_of(self._paths.value(key))


def _read(keys: Sequence[str], requests: OperationRequests) -> list[Entry | None]:
    found: list[KVPair | None] = []
    for at in range(0, len(keys), transactions.MAX_OPS):
        part = requests.ask(transactions.read(keys[at : at + transactions.MAX_OPS]))
        found.extend(part)
    return [entry_of(one) for one in found]


def _write(place: KeyedWrite, requests: OperationRequests) -> Version:
    outcome = requests.ask(transactions.write(place.operations()))
    if outcome.refusals:
        raise place.refusal({one.number: one.said for one in outcome.refusals})
    return place.version(outcome.records)


def _write_each(
    places: Sequence[KeyedWrite], requests: OperationRequests
) -> list[Version | Exception]:
    """Do all writes that are not refused: without those, in another transaction."""
    outcomes: dict[KeyedWrite, Version | Exception] = {}
    while left := [place for place in places if place not in outcomes]:
        try:
            outcomes |= _write_together(left, requests)
        except Exception as error:  # noqa: BLE001  each future carries the error
            outcomes |= dict.fromkeys(left, error)
    return [outcomes[place] for place in places]


def _write_together(
    places: Sequence[KeyedWrite], requests: OperationRequests
) -> dict[KeyedWrite, Version | Exception]:
    """Return the results of *places* or, if nothing was done, of those that are refused."""
    operations = [(place, one) for place in places for one in place.operations()]
    # Reversed, so that of the operations of one place the first one stays.
    first = {place: at for at, (place, _) in reversed(list(enumerate(operations)))}
    outcome = requests.ask(transactions.write([one for _, one in operations]))
    if not outcome.refusals:
        return {place: place.version(outcome.records) for place in places}
    said: dict[KeyedWrite, dict[int, str]] = {}
    for number, reason in outcome.refusals:
        place = operations[number][0]
        said.setdefault(place, {})[number - first[place]] = reason
    return {place: place.refusal(reasons) for place, reasons in said.items()}


def _parts(places: Sequence[KeyedWrite]) -> Iterator[list[KeyedWrite]]:
    """Cut *places* into parts of which each fits into one transaction, with no key twice.

    A key that is written guards nothing in the same part: the operations of a refused transaction
    see the writes of those before them, and would refuse writes for no reason.
    """
    ops, size = transactions.MAX_OPS, transactions.MAX_BYTES
    return parts(places, _size, most=ops, most_bytes=size, weight=_weight, key=_key, guards=_guards)


def _size(place: KeyedWrite) -> int:
    return place.size


def _weight(place: KeyedWrite) -> int:
    return place.weight


def _key(place: KeyedWrite) -> str:
    return place.key


def _guards(place: KeyedWrite) -> tuple[str, ...]:
    return place.guards
