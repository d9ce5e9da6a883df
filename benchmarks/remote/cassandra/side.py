"""Each operation with the driver: the statements that kip30 sends, and nothing besides."""

import time
from collections.abc import Sequence
from uuid import uuid4

from typing_extensions import override

from benchmarks.library import VALUE
from benchmarks.remote.cassandra.client import Client, Row
from benchmarks.remote.side import IN_FLIGHT, Side
from benchmarks.store_address import StoreAddress

_DATA = VALUE.encode()
_NONCE = "0123456789abcdef"
_NAMESPACE = "bench"
_NAME = "one"
_SERVICE = "service"
_SECONDS = 600
_MANY = 1_000_000
_NO_FENCE = ("", None)


class RawSide(Side):
    """Operations on partitions of their own."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)
        self._root = f"raw-{uuid4()}"
        self._groups: set[str] = set()
        self._revs = dict[tuple[str, str], int]()
        self._client.write(("begin_records", self._root, _NAMESPACE))
        self._version = self._put(_NAME, "put_exact", None)
        where = (self._root, _SERVICE)
        self._client.write(
            ("advance_leaders", 1, *where, None, None),
            ("take_seat", _SECONDS, "candidate", _NONCE, _DATA, 1, *where),
        )

    @override
    def get(self) -> Sequence[Row]:
        return self._client.read("read_records", self._root, _NAMESPACE, [_NAME])

    @override
    def put(self, name: str) -> object:
        return self._put(name, "put_exact", None)

    @override
    def update(self) -> object:
        self._version = self._put(_NAME, "put_present")
        return self._version

    @override
    def compare_and_set(self) -> object:
        self._version = self._put(_NAME, "put_exact", self._version)
        return self._version

    @override
    def join(self, group: str, member: str) -> None:
        if group not in self._groups:
            self._groups.add(group)
            self._client.write(("begin_members", self._root, group))
        rev, where = _revision(), (self._root, group)
        self._revs[group, member] = rev
        self._client.write(
            ("advance_members", rev, *where, rev),
            ("insert_member", _SECONDS, rev, _NONCE, _DATA, rev, *where, member),
        )

    @override
    def leave(self, group: str, member: str) -> None:
        rev = self._revs.pop((group, member))
        self._client.write(("delete_member", self._root, group, member, _NONCE, rev))

    @override
    def get_leader(self) -> object:
        return self._client.read("read_leaders", self._root, _SERVICE)

    @override
    def in_flight(self) -> object:
        read = self._client.begin_to_read
        answers = [read("read_records", self._root, _NAMESPACE, [_NAME]) for _ in range(IN_FLIGHT)]
        return [list(answer.result()) for answer in answers]

    @override
    def members(self, group: str) -> object:
        return self._client.read("read_members", self._root, group)

    @override
    def names(self) -> list[str]:
        rows = self._client.read("list_names", self._root, _NAMESPACE, "", _MANY)
        return [one["name"] for one in rows if one["version"] is not None]

    @override
    def close(self) -> None:
        self._client.close()

    def _put(self, name: str, form: str, *version: int | None) -> int:
        rev, where = _revision(), (self._root, _NAMESPACE)
        new = (rev, rev, _NONCE, _DATA)
        self._client.write(
            (form, *new, *where, name, rev, *_NO_FENCE, *version),
            ("sign", _SECONDS, _NONCE, rev, *where),
        )
        return rev


def _revision() -> int:
    return time.time_ns() // 1000
