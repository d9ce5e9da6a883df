"""Values: records in the table of their namespace, without a lease."""

from collections.abc import Sequence
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.kit import refusals
from kip30.driver.records import Entry, Kind, NamePage, Target, Version, Write
from kip30.names import Key
from toystore.memory import Memory
from toystore.session import Sessions


class ToyStorage(StorageDriver):
    def __init__(self, memory: Memory, sessions: Sessions) -> None:
        self._memory = memory
        self._sessions = sessions

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        return self._sessions.answer(lambda: [self._entry(key) for key in keys])

    @override
    def write(self, write: Write) -> Future[Version]:
        return self._sessions.answer(lambda: self._write(write))

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        return [self.write(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        return self._sessions.answer(lambda: _page(self._names(namespace, after), limit))

    def _entry(self, key: Key) -> Entry | None:
        return self._memory.look(_target(key)).entries.get(key.name)

    def _version(self, key: Key) -> Version | None:
        entry = self._entry(key)
        return entry and entry.version

    def _write(self, write: Write) -> Version:
        before = self._entry(write.key)
        version = before and before.version
        unmet = refusals.unmet_guard(write, self._version) or refusals.unmet(write, version)
        if unmet is not None:
            raise unmet
        if write.data is not None:
            return self._memory.put(_target(write.key), write.nonce, write.data).entry.version
        self._memory.remove(_target(write.key))
        return before.version if before else Version(self._memory.revision)

    def _names(self, namespace: str, after: str) -> list[str]:
        names = self._memory.table(Target(Kind.NAMESPACE, namespace))
        return sorted((name for name in names if name.encode() > after.encode()), key=str.encode)


def _page(names: list[str], limit: int) -> NamePage:
    return NamePage(names[:limit], is_last=len(names) <= limit)


def _target(key: Key) -> Target:
    return Target(Kind.VALUE, key.namespace, key.name)
