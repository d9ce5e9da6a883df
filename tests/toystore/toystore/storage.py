"""Values: records in the table of their namespace, without a lease."""

from collections.abc import Sequence
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.records import Condition, Entry, Kind, NamePage, Target, Version, Write
from kip30.errors import KeyExistsError, KeyMissingError, VersionConflictError
from kip30.names import Key
from toystore.memory import Memory
from toystore.session import Session


class ToyStorage(StorageDriver):
    def __init__(self, memory: Memory, session: Session) -> None:
        self._memory = memory
        self._session = session

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        return self._session.answer(lambda: [self._entry(key) for key in keys])

    @override
    def write(self, write: Write) -> Future[Version]:
        return self._session.answer(lambda: self._write(write))

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        return [self.write(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        return self._session.answer(lambda: _page(self._names(namespace, after), limit))

    def _entry(self, key: Key) -> Entry | None:
        return self._memory.look(_target(key)).entries.get(key.name)

    def _write(self, write: Write) -> Version:
        before = self._entry(write.key)
        _check(write, before)
        if write.data is not None:
            return self._memory.put(_target(write.key), write.nonce, write.data).entry.version
        if before is None:
            raise KeyMissingError(f"there is no key {str(write.key)!r}")
        self._memory.remove(_target(write.key))
        return before.version

    def _names(self, namespace: str, after: str) -> list[str]:
        names = self._memory.table(Target(Kind.NAMESPACE, namespace))
        return sorted((name for name in names if name.encode() > after.encode()), key=str.encode)


def _page(names: list[str], limit: int) -> NamePage:
    return NamePage(names[:limit], is_last=len(names) <= limit)


def _target(key: Key) -> Target:
    return Target(Kind.VALUE, key.namespace, key.name)


def _check(write: Write, before: Entry | None) -> None:
    """Raise unless the condition of *write* is met."""
    key, condition = str(write.key), write.condition
    if before is None:
        if condition is Condition.PRESENT or isinstance(condition, Version):
            raise KeyMissingError(f"there is no key {key!r}")
    elif condition is Condition.ABSENT:
        raise KeyExistsError(f"key {key!r} is there already, at version {before.version}")
    elif isinstance(condition, Version) and condition != before.version:
        raise VersionConflictError(f"key {key!r} is at version {before.version}, not {condition}")
