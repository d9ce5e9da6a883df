"""The store itself, in the place of another backend's server and the library that talks to it.

It knows tables of records and nothing of members, leaders or futures.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from kip30.driver.lease import Lease
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version


class Full(Exception):  # noqa: N818  a vendor names its errors as it likes
    """There is no room for another record. Nothing was written."""


class Record(NamedTuple):
    """An entry, and the lease it ends with if it has one."""

    entry: Entry
    lease: Lease | None


class Memory:
    """All records of one namespace. A caller that reads and then writes holds `lock` meanwhile."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.lock = threading.RLock()
        self.revision = 0
        self._tables: defaultdict[tuple[Kind, str], dict[str, Record]] = defaultdict(dict)
        self._watches: defaultdict[tuple[Kind, str], list[Callable[[], None]]] = defaultdict(list)

    def table(self, target: Target) -> dict[str, Record]:
        """Return the records *target* is about; a value stands in its namespace's table."""
        return self._tables[_table(target)]

    def size(self) -> int:
        """Return how many records there are."""
        return sum(map(len, self._tables.values()))

    def put(self, target: Target, nonce: str, data: bytes, lease: Lease | None = None) -> Record:
        """Write a record, under a version that nothing had before."""
        version = Version(self.revision + 1)
        return self.replace(target, Entry(version, nonce, data), lease)

    def replace(self, target: Target, entry: Entry, lease: Lease | None) -> Record:
        """Write a record under the version that *entry* has."""
        if self.size() >= self._capacity and target.name not in self.table(target):
            raise Full
        self.revision += 1
        record = Record(entry, lease)
        self.table(target)[target.name] = record
        self._tell(_table(target))
        return record

    def remove(self, target: Target) -> None:
        """Remove one record."""
        self.revision += 1
        del self.table(target)[target.name]
        self._tell(_table(target))

    def expire(self, lease: Lease) -> None:
        """Remove all records that end with *lease*."""
        with self.lock:
            for (kind, scope), table in list(self._tables.items()):
                for name in [name for name, record in table.items() if record.lease is lease]:
                    self.remove(Target(kind, scope, name))

    def look(self, target: Target) -> Snapshot:
        """Return the present state of *target*."""
        names = [target.name] if target.kind in _SINGLE else list(self.table(target))
        found = {name: self.table(target).get(name) for name in names}
        entries = {name: record.entry for name, record in found.items() if record}
        return Snapshot(self.revision, entries)

    def watch(self, target: Target, callback: Callable[[], None]) -> None:
        """Call *callback* now and after every change, with the lock held."""
        with self.lock:
            self._watches[_table(target)].append(callback)
            callback()

    def unwatch(self, target: Target, callback: Callable[[], None]) -> None:
        """Undo `watch`; nothing happens if that was done."""
        with self.lock:
            if callback in self._watches[_table(target)]:
                self._watches[_table(target)].remove(callback)

    def _tell(self, table: tuple[Kind, str]) -> None:
        for callback in list(self._watches[table]):
            callback()


_SINGLE = {Kind.VALUE: Kind.NAMESPACE, Kind.MEMBER: Kind.GROUP}
"""Kinds that are one record, and the kind of the table that it stands in."""

_SPACES: dict[str, Memory] = {}


def memory_of(namespace: str, capacity: int) -> Memory:
    """Return the store of *namespace*; the first to ask decides on its capacity."""
    return _SPACES.setdefault(namespace, Memory(capacity))


def _table(target: Target) -> tuple[Kind, str]:
    return (_SINGLE.get(target.kind, target.kind), target.scope)
