"""Each operation with grpcio: the requests that kip30 sends, and nothing besides."""

from typing import Any
from uuid import uuid4

from typing_extensions import override

from benchmarks.library import VALUE
from benchmarks.remote.etcd.stubs import Stubs, absent, present, read_request, unchanged
from benchmarks.remote.side import IN_FLIGHT, Side
from benchmarks.store_address import StoreAddress

_DATA = VALUE.encode()


class RawSide(Side):
    """Operations on keys of their own."""

    def __init__(self, address: StoreAddress) -> None:
        self._stubs = Stubs(address.location)
        self._root = f"/raw-{uuid4()}"
        self._key = self._at("kv/bench/one")
        self._leader = self._at("service/service/leader")
        self._lease = self._stubs.lease()
        self._stubs.put_if(absent(self._key), _DATA)
        self._stubs.put_if(absent(self._leader), _DATA, self._lease)
        self._version = 0

    @override
    def get(self) -> object:
        return self._read(self._key)

    @override
    def put(self, name: str) -> object:
        return self._stubs.put_if(absent(self._at(f"kv/bench/{name}")), _DATA)

    @override
    def update(self) -> object:
        return self._write(present(self._key))

    @override
    def compare_and_set(self) -> object:
        return self._write(unchanged(self._key, self._version))

    @override
    def join(self, group: str, member: str) -> object:
        key = self._at(f"group/{group}/{member}")
        return self._stubs.put_if(absent(key), _DATA, self._lease)

    @override
    def leave(self, group: str, member: str) -> object:
        return self._stubs.delete(self._at(f"group/{group}/{member}"))

    @override
    def get_leader(self) -> object:
        return self._read(self._leader)

    @override
    def in_flight(self) -> object:
        read = self._stubs.calls["Range"].future
        answers = [read(read_request(self._key)) for _ in range(IN_FLIGHT)]
        return [answer.result().kvs[0].value for answer in answers]

    @override
    def members(self, group: str) -> object:
        path = self._at(f"group/{group}")
        return {one.key: one.value for one in self._stubs.read(path + b"/", path + b"0").kvs}

    @override
    def names(self) -> list[str]:
        begin, end = self._at("kv/bench/"), self._at("kv/bench0")
        answer = self._stubs.read(begin, end, keys_only=True)
        return [one.key[len(begin) :].decode() for one in answer.kvs]

    @override
    def close(self) -> None:
        self._stubs.close()

    def _read(self, key: bytes) -> bytes:
        value: bytes = self._stubs.read(key).kvs[0].value
        return value

    def _write(self, condition: Any) -> int:
        self._version = self._stubs.put_if(condition, _DATA).header.revision
        return self._version

    def _at(self, path: str) -> bytes:
        return f"{self._root}/{path}".encode()
