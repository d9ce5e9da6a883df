"""Each operation with grpcio alone: the requests that kip30 sends, and nothing besides."""

from collections.abc import Iterator
from itertools import count, repeat
from typing import Any
from uuid import uuid4

from benchmarks.library import VALUE, Prepared
from benchmarks.remote.etcd_stubs import Stubs, absent, present, read_request, unchanged
from benchmarks.remote.operations import IN_FLIGHT, MEMBERS
from benchmarks.remote.place import Place

DATA = VALUE.encode()
LEASE_SECONDS = 120


class RawEtcd:
    """Operations on keys of their own."""

    def __init__(self, place: Place) -> None:
        self._stubs = Stubs(place.address)
        self._root = f"/raw-{uuid4()}".encode()
        self._key = self._root + b"/kv/bench/one"
        self._leader = self._root + b"/service/service/leader"
        self._lease = self._stubs.lease(LEASE_SECONDS)
        self._put(self._key)
        self._join(self._leader)
        self._joined: list[bytes] = []
        self._fresh = count()
        self._version = 0

    def get(self, loops: int) -> Prepared:
        return self._read, repeat((self._key,), loops)

    def put(self, loops: int) -> Prepared:
        return self._put, [(key,) for key in self._keys(b"/kv/bench/", loops)]

    def update(self, loops: int) -> Prepared:
        return self._update, repeat((), loops)

    def compare_and_set(self, loops: int) -> Prepared:
        self._version = self._update().header.revision
        return self._compare_and_set, repeat((), loops)

    def join(self, loops: int) -> Prepared:
        for key in self._joined:
            self._stubs.delete(key)
        self._joined = list(self._keys(b"/group/joining/", loops))
        return self._join, [(key,) for key in self._joined]

    def get_leader(self, loops: int) -> Prepared:
        return self._read, repeat((self._leader,), loops)

    def in_flight(self, loops: int) -> Prepared:
        return self._read_many_times, repeat((), loops)

    def group(self, loops: int) -> Prepared:
        for number in range(MEMBERS):
            self._join(self._root + b"/group/workers/member-%03d" % number)
        return self._read_group, repeat((), loops)

    def close(self) -> None:
        self._stubs.close()

    def _read(self, key: bytes) -> bytes:
        value: bytes = self._stubs.read(key).kvs[0].value
        return value

    def _put(self, key: bytes) -> Any:
        return self._stubs.put_if(absent(key), DATA)

    def _update(self) -> Any:
        return self._stubs.put_if(present(self._key), DATA)

    def _compare_and_set(self) -> None:
        answer = self._stubs.put_if(unchanged(self._key, self._version), DATA)
        self._version = answer.header.revision

    def _join(self, key: bytes) -> Any:
        return self._stubs.put_if(absent(key), DATA, self._lease)

    def _read_many_times(self) -> list[bytes]:
        read = self._stubs.calls["Range"].future
        answers = [read(read_request(self._key)) for _ in range(IN_FLIGHT)]
        return [answer.result().kvs[0].value for answer in answers]

    def _read_group(self) -> dict[bytes, bytes]:
        group = self._root + b"/group/workers"
        return {one.key: one.value for one in self._stubs.read(group + b"/", group + b"0").kvs}

    def _keys(self, parent: bytes, number: int) -> Iterator[bytes]:
        return (self._root + parent + b"%08d" % next(self._fresh) for _ in range(number))
