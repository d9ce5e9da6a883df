"""The measured operations of a store, which both sides of a comparison offer."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import count, repeat

from benchmarks.library import Prepared

IN_FLIGHT = 1000
MEMBERS = 100

_GROUP = "workers"
_JOINING = "joining"


class Side(ABC):
    """One side: kip30, or the raw client by the requests that kip30 sends.

    From the beginning a key is there, and a service has a leader.
    """

    @abstractmethod
    def get(self) -> object:
        """Read the key."""

    @abstractmethod
    def put(self, name: str) -> object:
        """Write a new key."""

    @abstractmethod
    def update(self) -> object:
        """Write the key, which must be there."""

    @abstractmethod
    def compare_and_set(self) -> object:
        """Write the key, which must have the version of our last write."""

    @abstractmethod
    def join(self, group: str, member: str) -> object: ...

    @abstractmethod
    def leave(self, group: str, member: str) -> object: ...

    @abstractmethod
    def get_leader(self) -> object: ...

    @abstractmethod
    def in_flight(self) -> object:
        """Begin to read the key `IN_FLIGHT` times, then wait for all answers."""

    @abstractmethod
    def members(self, group: str) -> object:
        """Read all members with their data."""

    @abstractmethod
    def names(self) -> list[str]:
        """Read the names of all keys that `put` wrote."""

    @abstractmethod
    def close(self) -> None: ...


class Preparation:
    """Prepares the operations that are to be timed on one *side*."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._fresh = count()
        self._joined: list[tuple[str, str]] = []
        self._group: list[str] = []

    def put(self, loops: int) -> Prepared:
        return self._side.put, [(name,) for name in self._names(loops)]

    def join(self, loops: int) -> Prepared:
        for group, member in self._joined:
            self._side.leave(group, member)
        self._joined = [(_JOINING, name) for name in self._names(loops)]
        return self._side.join, self._joined

    def group(self, loops: int) -> Prepared:
        if not self._group:
            self._group = [f"member-{number:03}" for number in range(MEMBERS)]
            for member in self._group:
                self._side.join(_GROUP, member)
        return self._side.members, repeat((_GROUP,), loops)

    def of(self, operation: str, loops: int) -> Prepared:
        if operation in {"put", "join", "group"}:
            prepared: Prepared = getattr(self, operation)(loops)
            return prepared
        if operation == "compare_and_set":
            self._side.update()
        return getattr(self._side, operation), repeat((), loops)

    def _names(self, number: int) -> Iterator[str]:
        return (f"{next(self._fresh):08}" for _ in range(number))
