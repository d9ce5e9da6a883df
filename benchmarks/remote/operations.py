"""What is measured of a store, and each operation as kip30 does it."""

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count, repeat
from typing import Protocol
from uuid import uuid4

from benchmarks.library import KEY, VALUE, Prepared
from benchmarks.remote.place import Place

MEMBERS = 100
IN_FLIGHT = 1000
GROUP = "workers"
SERVICE = "service"


class Operations(Protocol):
    """Both sides offer these. What is under a method's name is prepared, and then timed."""

    def get(self, loops: int) -> Prepared: ...
    def put(self, loops: int) -> Prepared: ...
    def update(self, loops: int) -> Prepared: ...
    def compare_and_set(self, loops: int) -> Prepared: ...
    def join(self, loops: int) -> Prepared: ...
    def get_leader(self, loops: int) -> Prepared: ...
    def in_flight(self, loops: int) -> Prepared: ...
    def group(self, loops: int) -> Prepared: ...
    def close(self) -> None: ...


class Library:
    """Operations with kip30, in a namespace of their own."""

    def __init__(self, place: Place) -> None:
        self._locator = place.started(f"bench-{uuid4()}")
        self._storage = self._locator.storage()
        self._joining = self._locator.group_membership("joining")
        self._group = self._locator.group_membership(GROUP)
        self._election = self._locator.leader_election(SERVICE)
        self._version = self._storage.put(KEY, VALUE)
        self._joined: list[str] = []
        self._fresh = count()

    def get(self, loops: int) -> Prepared:
        return self._storage.get, repeat((KEY,), loops)

    def put(self, loops: int) -> Prepared:
        return self._storage.put, [(f"bench/{name}", VALUE) for name in self._names(loops)]

    def update(self, loops: int) -> Prepared:
        return self._storage.update, repeat((KEY, VALUE), loops)

    def compare_and_set(self, loops: int) -> Prepared:
        self._version = self._storage.update(KEY, VALUE)
        return self._compare_and_set, repeat((), loops)

    def join(self, loops: int) -> Prepared:
        for member in self._joined:
            self._joining.leave(member)
        self._joined = list(self._names(loops))
        return self._joining.join, [(member, VALUE) for member in self._joined]

    def get_leader(self, loops: int) -> Prepared:
        self._election.nominate("candidate", VALUE)
        return self._election.get_leader, repeat((), loops)

    def in_flight(self, loops: int) -> Prepared:
        return self._fetch_many_times, repeat((), loops)

    def group(self, loops: int) -> Prepared:
        for number in range(MEMBERS):
            member = f"member-{number:03}"
            if self._group.member(member) is None:
                self._group.join(member, VALUE)
        return self._group.membership, repeat((), loops)

    def close(self) -> None:
        self._locator.close()

    def _compare_and_set(self) -> None:
        self._version = self._storage.compare_and_set(KEY, self._version, VALUE)

    def _fetch_many_times(self) -> list[str | None]:
        fetch = self._storage.fetch
        futures: list[Future[str | None]] = [fetch(KEY) for _ in range(IN_FLIGHT)]
        return [future.result() for future in futures]

    def _names(self, number: int) -> Iterator[str]:
        return (f"{next(self._fresh):08}" for _ in range(number))
