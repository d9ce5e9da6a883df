"""kip30's side of all comparisons."""

import time
from concurrent.futures import Future
from uuid import uuid4

from typing_extensions import override

from benchmarks.library import KEY, VALUE
from benchmarks.remote.candidate import Candidate, Elected
from benchmarks.remote.side import IN_FLIGHT, Side
from benchmarks.remote.wire import Heard, Wire
from benchmarks.store_address import SESSION_SECONDS, StoreAddress
from kip30 import GroupMembership, ValueChange

_WATCHED = "bench/watched"


class LibrarySide(Side):
    """Operations in a namespace of their own."""

    def __init__(self, address: StoreAddress) -> None:
        self._locator = address.open(f"bench-{uuid4()}")
        self._storage = self._locator.storage()
        self._groups: dict[str, GroupMembership[str]] = {}
        self._election = self._locator.leader_election("service")
        self._election.nominate("candidate", VALUE)
        self._version = self._storage.put(KEY, VALUE)

    @override
    def get(self) -> object:
        return self._storage.get(KEY)

    @override
    def put(self, name: str) -> object:
        return self._storage.put(f"bench/{name}", VALUE)

    @override
    def update(self) -> object:
        self._version = self._storage.update(KEY, VALUE)
        return self._version

    @override
    def compare_and_set(self) -> object:
        self._version = self._storage.compare_and_set(KEY, self._version, VALUE)
        return self._version

    @override
    def join(self, group: str, member: str) -> object:
        return self._group(group).join(member, VALUE)

    @override
    def leave(self, group: str, member: str) -> None:
        self._group(group).leave(member)

    @override
    def get_leader(self) -> object:
        return self._election.get_leader()

    @override
    def in_flight(self) -> object:
        fetch = self._storage.fetch
        futures: list[Future[str | None]] = [fetch(KEY) for _ in range(IN_FLIGHT)]
        return [future.result() for future in futures]

    @override
    def members(self, group: str) -> object:
        return self._group(group).membership()

    @override
    def names(self) -> list[str]:
        return list(self._storage.list("bench"))

    @override
    def close(self) -> None:
        self._locator.close()

    def _group(self, name: str) -> GroupMembership[str]:
        if name not in self._groups:
            self._groups[name] = self._locator.group_membership(name)
        return self._groups[name]


class LibraryWire(Wire):
    def __init__(self, address: StoreAddress) -> None:
        self._locator = address.open("events")
        self._storage = self._locator.storage()

    @override
    def create(self) -> None:
        self._storage.put(_WATCHED, "")

    @override
    def write(self, value: str) -> None:
        self._storage.update(_WATCHED, value)

    @override
    def listen(self, heard: Heard) -> None:
        def hear(change: ValueChange[str]) -> None:
            heard(change.value or "")

        self._locator.listener_registry().add_value_change_listener(_WATCHED, hear)


class LibraryCandidate(Candidate):
    def __init__(
        self,
        address: StoreAddress,
        elected: Elected,
        *,
        service: str = "handover",
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        self._locator = address.open("election", session_seconds)
        self._election = self._locator.leader_election(service)
        self._elected = elected

    @override
    def campaign(self) -> None:
        self._election.nominate("candidate", "", on_elected=lambda _: self._elected())

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._election.resign("candidate")
        return began
