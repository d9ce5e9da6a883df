"""Records: one key per key, whose version is the number of the write that made it what it is."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit.futures import mapped
from kip30.driver.record_format import seal
from kip30.driver.records import Condition, Entry, Kind, NamePage, Target, Version, Write
from kip30.errors import (
    DefiniteError,
    FencedError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)
from kip30.names import Key
from kip30_backends.consul import transactions
from kip30_backends.consul.client.exchange import Exchange
from kip30_backends.consul.election import leader_key
from kip30_backends.consul.request import Calls
from kip30_backends.consul.snapshots import States
from kip30_backends.consul.transactions import Record, entry_of, key_of

_BYTES_BESIDES = 2048
"""How much of a transaction one write needs besides its value, with the longest names."""

_ABSENT = "doesn't exist"

_NEVER = 0
"""An index that no key was ever modified at."""


class Place(NamedTuple):
    """A write, its key, and the key of the leader whose epoch fences it."""

    write: Write
    key: str
    leader: str

    @property
    def weight(self) -> int:
        """How many operations of a transaction this takes."""
        condition, fenced = self.write.condition, self.write.fence is not None
        bare = self.write.data is not None and condition in {Condition.ABSENT, Condition.ANY}
        return fenced + (1 if bare else 2)

    @property
    def size(self) -> int:
        """How many bytes of a transaction this takes at most."""
        return _BYTES_BESIDES + len(self.write.data or b"") * 4 // 3

    def operations(self) -> list[transactions.Operation]:
        """Return what does the write in a transaction, or has it refused."""
        fence = self.write.fence
        if fence is None:
            return self._operations()
        return [transactions.was_modified(self.leader, _index(fence.epoch)), *self._operations()]

    def version(self, records: Sequence[Record]) -> Version:
        """Return the version that the answer to the transaction tells of."""
        condition, told = self.write.condition, [one for one in records if one.key == self.key]
        if self.write.data is not None:
            return Version(told[-1].modified)
        return condition if isinstance(condition, Version) else Version(told[0].modified)

    def refusal(self, said: dict[int, str]) -> DefiniteError:
        """Return why the write was refused, given what was *said* of its operations."""
        fence, condition, key = self.write.fence, self.write.condition, str(self.write.key)
        if fence is not None and 0 in said:
            return FencedError(
                f"epoch {fence.epoch} is not the newest of {fence.service!r}, or is over"
            )
        if condition is Condition.ABSENT and self.write.data is not None:
            return KeyExistsError(f"{key!r} is there already")
        if isinstance(condition, Version) and not any(_ABSENT in one for one in said.values()):
            return VersionConflictError(f"{key!r} has another version than {condition}")
        return KeyMissingError(f"there is no key {key!r}")

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
            major, minor = self.write.condition
            return transactions.was_modified(self.key, _NEVER if minor else _index(major))
        return transactions.get(self.key)


def _index(number: int) -> int:
    """Return the index to compare with: Consul does not take a negative one."""
    return max(number, _NEVER)


class ConsulStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, paths: Paths, calls: Calls, states: States) -> None:
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
            done = self._calls.begin(partial(_write_each, part))
            answers += [mapped(done, partial(_nth, number)) for number in range(len(part))]
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        del limit  # a read brings all names
        place = self._states.place(Target(Kind.NAMESPACE, namespace))
        return self._calls.on_demand(
            lambda exchange: _page(self._states.look(place, exchange)[1].entries, after)
        )

    def _place(self, write: Write) -> Place:
        leader = leader_key(self._paths, write.fence.service) if write.fence else ""
        return Place(write, self._key(write.key), leader)

    def _key(self, key: Key) -> str:
        return key_of(self._paths.value(key))


def _read(keys: Sequence[str], exchange: Exchange) -> list[Entry | None]:
    found: list[Record | None] = []
    for at in range(0, len(keys), transactions.MAX_OPS):
        part = exchange.ask(transactions.read(keys[at : at + transactions.MAX_OPS]))
        found.extend(part)
    return [entry_of(one) for one in found]


def _write(place: Place, exchange: Exchange) -> Version:
    outcome = exchange.ask(transactions.write(place.operations()))
    if outcome.refusals:
        raise place.refusal({one.number: one.said for one in outcome.refusals})
    return place.version(outcome.records)


def _write_each(places: Sequence[Place], exchange: Exchange) -> list[Version | Exception]:
    """Do all writes that are not refused: without those, in another transaction."""
    outcomes: dict[Place, Version | Exception] = {}
    while left := [place for place in places if place not in outcomes]:
        try:
            outcomes |= _write_together(left, exchange)
        except Exception as error:  # noqa: BLE001  each future carries whatever it is
            outcomes |= dict.fromkeys(left, error)
    return [outcomes[place] for place in places]


def _write_together(
    places: Sequence[Place], exchange: Exchange
) -> dict[Place, Version | Exception]:
    """Return what became of all *places* or, if nothing was done, of those that are refused."""
    operations = [(place, one) for place in places for one in place.operations()]
    first = {place: at for at, (place, _) in reversed(list(enumerate(operations)))}
    outcome = exchange.ask(transactions.write([one for _, one in operations]))
    if not outcome.refusals:
        return {place: place.version(outcome.records) for place in places}
    said: dict[Place, dict[int, str]] = {}
    for number, told in outcome.refusals:
        place = operations[number][0]
        said.setdefault(place, {})[number - first[place]] = told
    return {place: place.refusal(told) for place, told in said.items()}


def _parts(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Cut *places* into parts of which each fits into one transaction, with no key twice."""
    part: list[Place] = []
    operations = size = 0
    for place in places:
        operations += place.weight
        size += place.size
        full = operations > transactions.MAX_OPS or size > transactions.MAX_BYTES
        if part and (full or any(place.key == other.key for other in part)):
            yield part
            part, operations, size = [], place.weight, place.size
        part.append(place)
    if part:
        yield part


def _nth(number: int, outcomes: Sequence[Version | Exception]) -> Version:
    outcome = outcomes[number]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _page(names: Iterable[str], after: str) -> NamePage:
    # The order of code points is that of UTF-8.
    return NamePage(sorted(name for name in names if name > after), is_last=True)
