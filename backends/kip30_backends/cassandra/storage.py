"""Records: a partition per namespace, whose revision becomes the version of what is written."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.following import gathered
from kip30.futures import mapped
from kip30.names import Key
from kip30.records import Entry, Version, Write
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.commits import Commits
from kip30_backends.cassandra.fences import Fences
from kip30_backends.cassandra.readings import MOST, Entries, Readings


class CassandraStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, calls: Calls, fences: Fences) -> None:
        """Keep records with *calls*."""
        self._calls = calls
        self._commits = Commits(calls, fences)
        self._readings = Readings(calls)

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        self._calls.check()
        if len(keys) == 1:
            namespace, name = keys[0]
            return mapped(self._readings.add(namespace, (name,)), lambda one: [one.get(name)])
        return mapped(
            self._of_all(keys), lambda found: [found[key.namespace].get(key.name) for key in keys]
        )

    @override
    def write(self, write: Write) -> Future[Version]:
        self._calls.check()
        return self._commits.add(write)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        self._calls.check()
        return [self._commits.add(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[list[str]]:
        statement = self._calls.statements.bind(
            "list_names", self._calls.root, namespace, after, limit
        )
        return self._calls.send(Ask(statement, _names))

    def _of_all(self, keys: Sequence[Key]) -> Future[dict[str, Entries]]:
        """Return what is there of *keys*, by namespace."""
        names = defaultdict[str, list[str]](list)
        for key in keys:
            names[key.namespace].append(key.name)
        parts = [
            (namespace, self._readings.add(namespace, some[at : at + MOST]))
            for namespace, some in names.items()
            for at in range(0, len(some), MOST)
        ]
        namespaces = [namespace for namespace, _ in parts]
        return mapped(gathered([part for _, part in parts]), partial(_merged, namespaces))


def _merged(namespaces: Sequence[str], parts: Sequence[Entries]) -> dict[str, Entries]:
    merged = defaultdict[str, Entries](dict)
    for namespace, part in zip(namespaces, parts, strict=True):
        merged[namespace].update(part)
    return merged


def _names(answer: Answer) -> list[str]:
    return [row["name"] for row in answer.rows if row["version"] is not None]
