"""Each operation with http.client: the requests that kip30 sends, and nothing besides."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from typing_extensions import override

from benchmarks.library import VALUE
from benchmarks.remote.consul.client import Client
from benchmarks.remote.side import IN_FLIGHT, Side
from benchmarks.store_address import StoreAddress
from kip30.driver.record_format import seal
from kip30_backends.consul import transactions

_DATA = seal("0123456789abcdef", VALUE.encode())
_CONNECTIONS = 4
"""Number of connections that kip30 has for requests that no thread waits for yet."""


class RawSide(Side):
    """Operations on keys of their own."""

    def __init__(self, address: StoreAddress) -> None:
        self._clients = [Client(address) for _ in range(_CONNECTIONS)]
        self._client = self._clients[0]
        self._pool = ThreadPoolExecutor(_CONNECTIONS)
        self._root = f"raw-{uuid4()}"
        self._key = f"{self._root}/kv/bench/one"
        self._leader = f"{self._root}/service/service/leader"
        self._session = self._client.session()
        self._write([transactions.put_over(self._key, _DATA, 0)])
        self._lock(self._leader)
        self._version = 0

    @override
    def get(self) -> object:
        return self._client.read(self._key)

    @override
    def put(self, name: str) -> object:
        return self._write([transactions.put_over(f"{self._root}/kv/bench/{name}", _DATA, 0)])

    @override
    def update(self) -> object:
        return self._replace(transactions.get(self._key))

    @override
    def compare_and_set(self) -> object:
        return self._replace(transactions.was_modified(self._key, self._version))

    @override
    def join(self, group: str, member: str) -> object:
        return self._lock(f"{self._root}/group/{group}/{member}")

    @override
    def leave(self, group: str, member: str) -> object:
        return self._write([transactions.delete(f"{self._root}/group/{group}/{member}")])

    @override
    def get_leader(self) -> object:
        return self._client.read(self._leader)

    @override
    def in_flight(self) -> object:
        return list(self._pool.map(self._read_share, self._clients))

    @override
    def members(self, group: str) -> object:
        return self._client.read_all(f"{self._root}/group/{group}/")

    @override
    def names(self) -> list[str]:
        return self._client.names(f"{self._root}/kv/bench/")

    @override
    def close(self) -> None:
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def _read_share(self, client: Client) -> list[bytes | None]:
        return [client.read(self._key) for _ in range(IN_FLIGHT // _CONNECTIONS)]

    def _replace(self, condition: transactions.Operation) -> int:
        self._version = self._write([condition, transactions.put(self._key, _DATA)])
        return self._version

    def _lock(self, key: str) -> int:
        absent = transactions.is_absent(key)
        return self._write([absent, transactions.lock(key, _DATA, self._session)])

    def _write(self, operations: Sequence[transactions.Operation]) -> int:
        number = self._client.write(operations)
        assert number is not None, "refused"
        return number
