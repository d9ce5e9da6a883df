"""Each operation with kazoo: the requests that kip30 sends, and nothing besides."""

from typing import Any
from uuid import uuid4

from typing_extensions import override

from benchmarks.library import VALUE
from benchmarks.remote.side import IN_FLIGHT, Side
from benchmarks.remote.zookeeper.client import connected
from benchmarks.store_address import StoreAddress

_DATA = VALUE.encode()


class RawSide(Side):
    """Operations below a path of their own."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = connected(address)
        self._root = f"/raw-{uuid4()}"
        self._key = f"{self._root}/kv/bench/one"
        self._leader = f"{self._root}/service/service/leader"
        self._client.create(self._key, _DATA, makepath=True)
        self._client.create(self._leader, _DATA, makepath=True, ephemeral=True)
        self._groups: set[str] = set()
        self._version = 0

    @override
    def get(self) -> object:
        return self._synced_get(self._key)

    @override
    def put(self, name: str) -> object:
        return self._client.create(f"{self._root}/kv/bench/{name}", _DATA)

    @override
    def update(self) -> object:
        self._version = self._client.set(self._key, _DATA).version
        return self._version

    @override
    def compare_and_set(self) -> object:
        self._version = self._client.set(self._key, _DATA, version=self._version).version
        return self._version

    @override
    def join(self, group: str, member: str) -> object:
        if group not in self._groups:
            self._groups.add(group)
            self._client.ensure_path(self._group(group))
        return self._client.create(f"{self._group(group)}/{member}", _DATA, ephemeral=True)

    @override
    def leave(self, group: str, member: str) -> object:
        return self._client.delete(f"{self._group(group)}/{member}")

    @override
    def get_leader(self) -> object:
        return self._synced_get(self._leader)

    @override
    def in_flight(self) -> object:
        self._client.sync_async(self._key)
        answers = [self._client.get_async(self._key) for _ in range(IN_FLIGHT)]
        return [answer.get() for answer in answers]

    @override
    def members(self, group: str) -> object:
        path = self._group(group)
        names = self._client.get_children(path)
        return {name: self._client.get(f"{path}/{name}")[0] for name in names}

    @override
    def names(self) -> list[str]:
        path = f"{self._root}/kv/bench"
        self._client.sync_async(path)
        return list(self._client.get_children(path))

    @override
    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _synced_get(self, path: str) -> Any:
        self._client.sync_async(path)
        return self._client.get(path)

    def _group(self, name: str) -> str:
        return f"{self._root}/group/{name}"
