"""Values: a key each, whose last revision is the version."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver.contract import StorageDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.batch_splitting import parts
from kip30.driver.kit.blocking_calls import BlockingCalls
from kip30.driver.kit.byte_store.interface import (
    ByteStore,
    Commit,
    CommitOutcome,
    KeyCondition,
    Put,
)
from kip30.driver.kit.byte_store.target_states import TargetStates, unsealed
from kip30.driver.kit.futures import each
from kip30.driver.kit.record_paths import last_page
from kip30.driver.record_format import seal
from kip30.driver.records import Condition, Entry, Kind, NamePage, Target, Version, Write
from kip30.names import Key

_MOST = 100
_MOST_BYTES = 512 * 1024
"""Maximum number and total size, in bytes, of the writes that are sent together."""
_NEVER = -1
"""A revision that nothing has."""

Decision = Version | Exception


class ByteStorage(StorageDriver):
    """Keys and what is at them."""

    def __init__(self, store: ByteStore, calls: BlockingCalls, states: TargetStates) -> None:
        """Keep values in *store*, where *records* looks for them."""
        self._store = store
        self._calls = calls
        self._states = states

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        return self._calls.on_demand(partial(self._read, keys))

    @override
    def write(self, write: Write) -> Future[Version]:
        return self.write_many([write])[0]

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        answers: list[Future[Version]] = []
        for part in parts(writes, _size, most=_MOST, most_bytes=_MOST_BYTES):
            answers += each(self._calls.on_demand(partial(self._write, part)), len(part))
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        return self._calls.on_demand(partial(self._names, namespace, after))

    def _read(self, keys: Sequence[Key], until: float) -> list[Entry | None]:
        places = [self._states.paths.value(key) for key in keys]
        found = {one.key: one for one in self._store.get(places, until).records}
        entries: list[Entry | None] = []
        for place in places:
            record = found.get(place)
            if record is None:
                entries.append(None)
            else:
                nonce, _, data = unsealed(record)
                entries.append(Entry(Version(record.modified), nonce, data))
        return entries

    def _write(self, writes: Sequence[Write], until: float) -> list[Decision]:
        outcomes = self._store.commit([self._commit(write) for write in writes], until)
        # This answer shows whether the store started from scratch; later reads must come after it.
        for outcome in outcomes:
            self._states.orders.of(outcome.position)
        return [self._decision(*pair) for pair in zip(writes, outcomes, strict=True)]

    def _commit(self, write: Write) -> Commit:
        key, condition = self._states.paths.value(write.key), write.condition
        conditions = {key: KeyCondition()}
        if isinstance(condition, Version):
            conditions[key] = _at(condition)
        elif condition is Condition.ABSENT:
            conditions[key] = KeyCondition(is_absent=True)
        elif condition is Condition.ANY and write.data is not None:
            conditions = {}
        if write.fence is not None:
            leader = self._states.leader_key(write.fence.service)
            conditions[leader] = KeyCondition(created=write.fence.epoch)
        for guard in write.guards:
            conditions[self._states.paths.value(guard.key)] = _at(guard.version)
        if write.data is None:
            return Commit(conditions, {}, [key])
        return Commit(conditions, {key: Put(seal(write.nonce, write.data))}, [])

    def _decision(self, write: Write, outcome: CommitOutcome) -> Decision:
        def found(key: Key) -> Version | None:
            record = outcome.found.get(self._states.paths.value(key))
            return record and Version(record.modified)

        before = found(write.key)
        if outcome.is_done:
            is_deleted = write.data is None
            return before if before and is_deleted else Version(outcome.position.revision)
        if write.fence is not None:
            leader = outcome.found.get(self._states.leader_key(write.fence.service))
            if leader is None or leader.created != write.fence.epoch:
                return refusals.fenced(write.fence)
        unmet = refusals.unmet_guard(write, found) if write.guards else None
        return unmet or refusals.refused(write, before)

    def _names(self, namespace: str, after: str, until: float) -> NamePage:
        names = self._states.read(Target(Kind.NAMESPACE, namespace), until).entries
        return last_page(names, after)


def _at(version: Version) -> KeyCondition:
    return KeyCondition(modified=_NEVER if version.minor else version.major)


def _size(write: Write) -> int:
    return len(write.data or b"")
