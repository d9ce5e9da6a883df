"""What a client does while it is measured: single operations, listening, campaigns and scans."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count, repeat
from typing import Any
from unittest.mock import patch

from typing_extensions import override

IN_FLIGHT = 1000
MEMBERS = 100
RAW_KEY = "raw/kv/bench/watched"
RAW_LEADER = "raw/service/handover/leader"

_GROUP = "workers"
_JOINING = "joining"

Operation = Callable[..., object]
Prepared = tuple[Operation, Iterable[tuple[Any, ...]]]
"""The operation to time, and the arguments of each call."""

Heard = Callable[[str], None]
Elected = Callable[[], None]


class Side(ABC):
    """One side of a comparison: kip30, or the client of the store alone."""

    def prepared(self, operation: str, loops: int) -> Prepared:
        """Return what is to be timed, by the method of that name."""
        prepared: Prepared = getattr(self, operation)(loops)
        return prepared

    @abstractmethod
    def close(self) -> None: ...


class ServerSide(Side):
    """The client of a server alone, by the requests that kip30 sends.

    From the beginning a key is there, and a service has a leader.
    """

    def __init__(self) -> None:
        self._fresh = count()
        self._joined: list[tuple[str, str]] = []
        self._is_full = False

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

    @override
    def prepared(self, operation: str, loops: int) -> Prepared:
        if operation == "put":
            return self.put, [(name,) for name in self._names(loops)]
        if operation == "join":
            return self.join, self._prepared_members(loops)
        if operation == "group":
            self._fill_group()
            return self.members, repeat((_GROUP,), loops)
        if operation == "compare_and_set":
            self.update()
        return getattr(self, operation), repeat((), loops)

    def _prepared_members(self, number: int) -> list[tuple[str, str]]:
        for group, member in self._joined:
            self.leave(group, member)
        self._joined = [(_JOINING, name) for name in self._names(number)]
        return self._joined

    def _fill_group(self) -> None:
        if not self._is_full:
            for number in range(MEMBERS):
                self.join(_GROUP, f"member-{number:03}")
            self._is_full = True

    def _names(self, number: int) -> Iterator[str]:
        return (f"{next(self._fresh):08}" for _ in range(number))


class WatchedKey(ABC):
    """A key that one process writes, and another hears of."""

    @abstractmethod
    def create(self) -> None:
        """Create the key."""

    @abstractmethod
    def write(self, value: str) -> None:
        """Give it another value."""

    @abstractmethod
    def listen(self, heard: Heard) -> None:
        """Call *heard* with each value from now on, on some thread."""

    def close(self) -> None:  # noqa: B027  a raw one ends with the process
        """Close the client."""


class Candidate(ABC):
    """A candidate for one service, or for one lock; it is called on some thread when it leads."""

    @abstractmethod
    def campaign(self) -> None:
        """Become the leader, or be ready to as soon as there is none."""

    @abstractmethod
    def resign(self) -> int:
        """Stop leading, and do not campaign; return the moment it began, in nanoseconds."""


class ScanReplay(ABC):
    """The client of a store alone, and the requests of a scan that it repeats."""

    @abstractmethod
    @contextmanager
    def recording(self) -> Generator[None]:
        """Note the requests that kip30 sends in the block."""

    @abstractmethod
    def read(self) -> int:
        """Send the requests again, take the fields of each row, and return how many rows came.

        A row's fields are those of `kip30.scanning.Row`, as the client returns them: nothing is
        unsealed, unescaped or checked.
        """

    @abstractmethod
    def close(self) -> None: ...


@contextmanager
def noting(owner: Any, method: str, note: Callable[..., None]) -> Generator[None]:
    """Call *note* with the arguments of each call of *method* of the class *owner*."""
    original = getattr(owner, method)

    @wraps(original)
    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        note(*arguments, **named)
        return original(self, *arguments, **named)

    with patch.object(owner, method, noted):
        yield
