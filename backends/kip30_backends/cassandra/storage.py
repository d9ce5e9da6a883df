"""Records: a partition per namespace, whose revision becomes the version of what is written."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.kit.following import gathered
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Entry, NamePage, Version, Write
from kip30.names import Key
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.commits import Commits
from kip30_backends.cassandra.fences import Fences
from kip30_backends.cassandra.folding import Place
from kip30_backends.cassandra.folds import Folds
from kip30_backends.cassandra.readings import MOST, Readings

_Part = tuple[str, list[str]]


class CassandraStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, calls: Calls, fences: Fences, folds: Folds) -> None:
        """Keep records with *calls*."""
        self._calls = calls
        self._folds = folds
        self._commits = Commits(calls, fences, folds)
        self._readings = Readings(calls)

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        self._calls.check()
        if len(keys) == 1:
            return self._readings.add(keys[0].namespace, (keys[0].name,))
        parts = list(_parts(keys))
        reads = [self._readings.add(namespace, names) for namespace, names in parts]
        return mapped(gathered(reads), partial(_in_order, keys, parts))

    @override
    def write(self, write: Write) -> Future[Version]:
        self._calls.check()
        return self._commits.add(write)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        self._calls.check()
        return [self._commits.add(write) for write in writes]

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        statement = self._calls.statements.bind(
            "list_names", self._calls.root, namespace, after, limit
        )
        until = self._calls.until()
        ask = Ask(statement, partial(_names, limit), scans=True)
        read = partial(self._calls.send, ask, until)
        return self._folds.mended(Place("records", namespace), read, until)


def _parts(keys: Iterable[Key]) -> Iterator[_Part]:
    """Yield *keys* by namespace, so many names at a time."""
    names = defaultdict[str, list[str]](list)
    for key in keys:
        names[key.namespace].append(key.name)
    for namespace, some in names.items():
        for at in range(0, len(some), MOST):
            yield namespace, some[at : at + MOST]


def _in_order(
    keys: Iterable[Key], parts: Iterable[_Part], read: Iterable[list[Entry | None]]
) -> list[Entry | None]:
    """Return what was *read*, part by part, in the order of *keys*."""
    found = {
        (namespace, name): entry
        for (namespace, names), entries in zip(parts, read, strict=True)
        for name, entry in zip(names, entries, strict=True)
    }
    return [found[key] for key in keys]


def _names(limit: int, answer: Answer) -> NamePage:
    names = [row["name"] for row in answer.rows if row["version"] is not None]
    return NamePage(names, is_last=not names or len(answer.rows) < limit)
