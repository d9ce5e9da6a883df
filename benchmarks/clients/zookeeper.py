"""ZooKeeper by kazoo alone: the requests that kip30 sends, and nothing besides."""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
from typing_extensions import override

from benchmarks.clients.interfaces import (
    IN_FLIGHT,
    RAW_KEY,
    RAW_LEADER,
    Candidate,
    Elected,
    Heard,
    ScanReplay,
    ServerSide,
    WatchedKey,
    noting,
)
from benchmarks.clients.library import VALUE
from benchmarks.store_address import SESSION_SECONDS, StoreAddress
from kip30_backends.zookeeper.scan_reader import Reader

_DATA = VALUE.encode()
_KEY = f"/{RAW_KEY}"
_LEADER = f"/{RAW_LEADER}"
_RECORD_DEPTH = 4


def connected(address: StoreAddress) -> Any:
    client: Any = KazooClient(hosts=address.location, timeout=SESSION_SECONDS)
    client.start()
    return client


class RawSide(ServerSide):
    """Operations below a path of their own."""

    def __init__(self, address: StoreAddress) -> None:
        super().__init__()
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


class RawWatchedKey(WatchedKey):
    """A watch of ``get``, which is armed again with the read it gives rise to."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = connected(address)

    @override
    def create(self) -> None:
        self._client.create(_KEY, b"", makepath=True)

    @override
    def write(self, value: str) -> None:
        self._client.set(_KEY, value.encode())

    @override
    def listen(self, heard: Heard) -> None:
        def again(_event: object) -> None:
            data, _ = self._client.get(_KEY, watch=again)
            heard(data.decode())

        self._client.get(_KEY, watch=again)


class RawCandidate(Candidate):
    """A watch on one ephemeral node, which is created when it is gone."""

    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._client = connected(address)
        self._elected = elected
        self._client.ensure_path(_LEADER.rpartition("/")[0])

    @override
    def campaign(self) -> None:
        if not self._client.exists(_LEADER, watch=self._changed):
            self._take()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._client.delete(_LEADER)
        return began

    def _changed(self, event: Any) -> None:
        if event.type == "DELETED":
            self._take()

    def _take(self) -> None:
        try:
            self._client.create(_LEADER, b"", ephemeral=True)
        except NodeExistsError:
            return
        self._elected()


class KazooLockCandidate(Candidate):
    """A thread that waits for kazoo's lock."""

    def __init__(self, address: StoreAddress, elected: Elected) -> None:
        self._lock = connected(address).Lock("/contested")
        self._elected = elected

    @override
    def campaign(self) -> None:
        threading.Thread(target=self._acquire, daemon=True).start()

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._lock.release()
        return began

    def _acquire(self) -> None:
        self._lock.acquire()
        self._elected()


class RawScan(ScanReplay):
    """The same paths, a page of them in flight at once.

    This is the quickest that kazoo offers, which cannot read many nodes with one request.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._client = connected(address)
        self._pages: list[Sequence[str]] = []
        self._parents: list[Sequence[str]] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        with (
            noting(Reader, "nodes", self._pages.append),
            noting(Reader, "names", self._parents.append),
        ):
            yield

    @override
    def read(self) -> int:
        for paths in self._parents:
            self._all(self._client.get_children_async, paths)
        return sum(len(self._rows(paths)) for paths in self._pages)

    @override
    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _rows(self, paths: Sequence[str]) -> list[Any]:
        found = zip(paths, self._all(self._client.get_async, paths), strict=True)
        return [
            (path, data, stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)
            for path, (data, stat) in found
            if path.count("/") == _RECORD_DEPTH
        ]

    def _all(self, ask: Any, paths: Sequence[str]) -> list[Any]:
        answers = [ask(path or "/") for path in paths]
        return [answer.get() for answer in answers]
