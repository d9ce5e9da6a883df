"""Each operation as kip30 does it."""

from collections.abc import Callable, Iterable
from itertools import count, repeat
from pathlib import Path
from typing import Any

from benchmarks.store_address import EMBEDDED, StoreAddress

Operation = Callable[..., object]
Prepared = tuple[Operation, Iterable[tuple[Any, ...]]]
"""The operation to time, and the arguments of each call."""

VALUE = "a value of some forty characters, say so"
MANY = 100
KEY = "bench/one"


class Library:
    """Operations on the embedded store in *directory*."""

    def __init__(self, directory: Path) -> None:
        self._locator = StoreAddress(EMBEDDED, str(directory)).open()
        self._storage = self._locator.storage()
        self._fresh = count()
        self._version = self._storage.put(KEY, VALUE)

    def get(self, loops: int) -> Prepared:
        return self._storage.get, repeat((KEY,), loops)

    def fetch(self, loops: int) -> Prepared:
        fetch = self._storage.fetch
        return lambda: fetch(KEY).result(), repeat((), loops)

    def fetch_many(self, loops: int) -> Prepared:
        keys = list(self._put_some())
        fetch = self._storage.fetch_many
        return lambda: fetch(keys).result(), repeat((), loops)

    def put(self, loops: int) -> Prepared:
        return self._storage.put, [(self._key(), VALUE) for _ in range(loops)]

    def put_without_checkpoints(self, loops: int) -> Prepared:
        """Put as ever; it is the raw library that never copies its log back."""
        return self.put(loops)

    def put_many(self, loops: int) -> Prepared:
        return self._storage.put_many, [(self._some(),) for _ in range(loops)]

    def update(self, loops: int) -> Prepared:
        return self._storage.update, repeat((KEY, VALUE), loops)

    def compare_and_set(self, loops: int) -> Prepared:
        self._version = self._storage.update(KEY, VALUE)
        return self._compare_and_set, repeat((), loops)

    def delete(self, loops: int) -> Prepared:
        keys = [self._key() for _ in range(loops)]
        for key in keys:
            self._storage.put(key, VALUE)
        return self._storage.delete, [(key,) for key in keys]

    def close(self) -> None:
        self._locator.close()

    def _compare_and_set(self) -> None:
        self._version = self._storage.compare_and_set(KEY, self._version, VALUE)

    def _key(self) -> str:
        return f"bench/{next(self._fresh):08}"

    def _some(self) -> dict[str, str]:
        return {self._key(): VALUE for _ in range(MANY)}

    def _put_some(self) -> dict[str, str]:
        some = self._some()
        self._storage.put_many(some)
        return some
