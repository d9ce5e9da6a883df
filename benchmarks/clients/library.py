"""kip30's side of all comparisons, on any store."""

import threading
import time
from concurrent.futures import Future
from itertools import count, repeat
from uuid import uuid4

from typing_extensions import override

from benchmarks.clients.interfaces import (
    IN_FLIGHT,
    MEMBERS,
    Candidate,
    Elected,
    Heard,
    Prepared,
    Side,
    WatchedKey,
)
from benchmarks.store_address import StoreAddress
from kip30 import ValueChange
from kip30.recipes import FencedGrip, Lock

VALUE = "a value of some forty characters, say so"
KEY = "bench/one"
MANY = 100
GROUP = "workers"

_WATCHED = "bench/watched"
_SERVICE = "contested"


class LibrarySide(Side):
    """Operations in a namespace of their own; each method prepares one to be timed."""

    def __init__(self, address: StoreAddress) -> None:
        self._locator = address.open(f"bench-{uuid4()}")
        self._storage = self._locator.storage()
        self._fresh = count()
        self._version = self._storage.put(KEY, VALUE)
        self._election = self._locator.leader_election("service")
        if not address.is_embedded:  # whose raw side has no session either
            self._election.nominate("candidate", VALUE)
        self._joining = self._locator.group_membership("joining")
        self._joined: list[str] = []
        self._group = self._locator.group_membership(GROUP)
        self._is_full = False

    def get(self, loops: int) -> Prepared:
        return self._storage.get, repeat((KEY,), loops)

    def fetch(self, loops: int) -> Prepared:
        fetch = self._storage.fetch
        return lambda: fetch(KEY).result(), repeat((), loops)

    def fetch_many(self, loops: int) -> Prepared:
        some = self._some()
        self._storage.put_many(some)
        keys, fetch = list(some), self._storage.fetch_many
        return lambda: fetch(keys).result(), repeat((), loops)

    def in_flight(self, loops: int) -> Prepared:
        """Begin to read the key `IN_FLIGHT` times, then wait for all answers."""
        fetch = self._storage.fetch

        def read() -> list[str | None]:
            futures: list[Future[str | None]] = [fetch(KEY) for _ in range(IN_FLIGHT)]
            return [future.result() for future in futures]

        return read, repeat((), loops)

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

    def join(self, loops: int) -> Prepared:
        for member in self._joined:
            self._joining.leave(member)
        self._joined = [f"{next(self._fresh):08}" for _ in range(loops)]
        return self._joining.join, [(member, VALUE) for member in self._joined]

    def get_leader(self, loops: int) -> Prepared:
        return self._election.get_leader, repeat((), loops)

    def group(self, loops: int) -> Prepared:
        if not self._is_full:
            for number in range(MEMBERS):
                self._group.join(f"member-{number:03}", VALUE)
            self._is_full = True
        return self._group.membership, repeat((), loops)

    @override
    def close(self) -> None:
        self._locator.close()

    def _compare_and_set(self) -> None:
        self._version = self._storage.compare_and_set(KEY, self._version, VALUE)

    def _key(self) -> str:
        return f"bench/{next(self._fresh):08}"

    def _some(self) -> dict[str, str]:
        return {self._key(): VALUE for _ in range(MANY)}


class LibraryWatchedKey(WatchedKey):
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

    @override
    def close(self) -> None:
        self._locator.close()


class LibraryCandidate(Candidate):
    def __init__(
        self, address: StoreAddress, elected: Elected, number: int, session_seconds: float
    ) -> None:
        self._locator = address.open("election", session_seconds)
        self._election = self._locator.leader_election(_SERVICE)
        self._elected = elected
        self._name = f"candidate-{number:04}"

    @override
    def campaign(self) -> None:
        self._election.nominate(self._name, "", on_elected=lambda _: self._elected())

    @override
    def resign(self) -> int:
        began = time.monotonic_ns()
        self._election.resign(self._name)
        return began


class LockCandidate(Candidate):
    """A thread that waits for the lock."""

    def __init__(self, address: StoreAddress, elected: Elected, *, fair: bool) -> None:
        self._locator = address.open("election")
        self._lock = Lock(self._locator, _SERVICE, fair=fair)
        self._elected = elected
        self._grip: FencedGrip | None = None

    @override
    def campaign(self) -> None:
        threading.Thread(target=self._acquire, daemon=True).start()

    @override
    def resign(self) -> int:
        assert self._grip is not None
        began = time.monotonic_ns()
        self._grip.release()
        return began

    def _acquire(self) -> None:
        self._grip = self._lock.acquire()
        self._elected()
