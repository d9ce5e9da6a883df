"""Each operation with kazoo alone: the requests that kip30 sends, and nothing besides."""

from collections.abc import Iterator
from itertools import count, repeat
from typing import Any
from uuid import uuid4

from kazoo.client import KazooClient

from benchmarks.library import VALUE, Prepared
from benchmarks.remote.operations import IN_FLIGHT, MEMBERS
from benchmarks.remote.place import SESSION_SECONDS, Place

DATA = VALUE.encode()


def connected(place: Place) -> Any:
    client: Any = KazooClient(hosts=place.address, timeout=SESSION_SECONDS)
    client.start()
    return client


class RawZookeeper:
    """Operations below a path of their own."""

    def __init__(self, place: Place) -> None:
        self._client = connected(place)
        self._root = f"/raw-{uuid4()}"
        self._key = f"{self._root}/kv/bench/one"
        self._leader = f"{self._root}/service/service/leader"
        self._group = f"{self._root}/group/workers"
        self._joining = f"{self._root}/group/joining"
        self._client.create(self._key, DATA, makepath=True)
        self._client.create(self._leader, DATA, makepath=True, ephemeral=True)
        self._client.ensure_path(self._joining)
        self._joined: list[str] = []
        self._fresh = count()
        self._version = 0

    def get(self, loops: int) -> Prepared:
        return self._synced_get, repeat((self._key,), loops)

    def put(self, loops: int) -> Prepared:
        paths = self._paths(f"{self._root}/kv/bench", loops)
        return self._client.create, [(path, DATA) for path in paths]

    def update(self, loops: int) -> Prepared:
        return self._client.set, repeat((self._key, DATA), loops)

    def compare_and_set(self, loops: int) -> Prepared:
        self._version = self._client.set(self._key, DATA).version
        return self._compare_and_set, repeat((), loops)

    def join(self, loops: int) -> Prepared:
        for path in self._joined:
            self._client.delete(path)
        self._joined = list(self._paths(self._joining, loops))
        return self._create_ephemeral, [(path,) for path in self._joined]

    def get_leader(self, loops: int) -> Prepared:
        return self._synced_get, repeat((self._leader,), loops)

    def in_flight(self, loops: int) -> Prepared:
        return self._get_many_times, repeat((), loops)

    def group(self, loops: int) -> Prepared:
        self._fill_group()
        return self._one_get_per_child, repeat((), loops)

    def group_pipelined(self, loops: int) -> Prepared:
        self._fill_group()
        return self._pipelined_gets, repeat((), loops)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _synced_get(self, path: str) -> Any:
        self._client.sync_async(path)
        return self._client.get(path)

    def _compare_and_set(self) -> None:
        self._version = self._client.set(self._key, DATA, version=self._version).version

    def _create_ephemeral(self, path: str) -> None:
        self._client.create(path, DATA, ephemeral=True)

    def _get_many_times(self) -> list[Any]:
        self._client.sync_async(self._key)
        answers = [self._client.get_async(self._key) for _ in range(IN_FLIGHT)]
        return [answer.get() for answer in answers]

    def _one_get_per_child(self) -> dict[str, bytes]:
        names = self._client.get_children(self._group)
        return {name: self._client.get(f"{self._group}/{name}")[0] for name in names}

    def _pipelined_gets(self) -> dict[str, bytes]:
        names = self._client.get_children(self._group)
        answers = {name: self._client.get_async(f"{self._group}/{name}") for name in names}
        return {name: answer.get()[0] for name, answer in answers.items()}

    def _fill_group(self) -> None:
        if not self._client.exists(self._group):
            self._client.ensure_path(self._group)
            for number in range(MEMBERS):
                self._create_ephemeral(f"{self._group}/member-{number:03}")

    def _paths(self, parent: str, number: int) -> Iterator[str]:
        return (f"{parent}/{next(self._fresh):08}" for _ in range(number))
