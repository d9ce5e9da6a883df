"""Candidates that say when they are elected: ``python -m benchmarks.growth.candidate …``.

SIDE SPOT FIRST NUMBER runs candidates FIRST to FIRST + NUMBER - 1, each with a session of its own.
Lines of the input have one of them ``resign``, or ``campaign`` again.
"""

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from typing_extensions import override

from benchmarks.roles import say
from benchmarks.store_address import StoreAddress
from kip30.recipes import FencedGrip, Lock

SERVICE = "crowded"


class Candidate(ABC):
    """One that can lead, and says when it begins to."""

    def __init__(self, number: int) -> None:
        self.number = number

    def tell(self, word: str) -> None:
        say(word, self.number, time.monotonic_ns())

    @abstractmethod
    def campaign(self) -> None: ...

    @abstractmethod
    def resign(self) -> None: ...


class LibraryCandidate(Candidate):
    def __init__(self, address: StoreAddress, number: int) -> None:
        super().__init__(number)
        self._locator = address.open("candidates")
        self._election = self._locator.leader_election(SERVICE)
        self._name = f"candidate-{number:04}"

    @override
    def campaign(self) -> None:
        self._election.nominate(self._name, "", on_elected=lambda _: self.tell("elected"))

    @override
    def resign(self) -> None:
        self._election.resign(self._name)


class LockCandidate(Candidate):
    """A thread that waits for the lock."""

    fair = False

    def __init__(self, address: StoreAddress, number: int) -> None:
        super().__init__(number)
        self._locator = address.open("candidates")
        self._lock = Lock(self._locator, SERVICE, fair=self.fair)
        self._grip: FencedGrip | None = None

    @override
    def campaign(self) -> None:
        threading.Thread(target=self._acquire, daemon=True).start()

    @override
    def resign(self) -> None:
        assert self._grip is not None
        self._grip.release()

    def _acquire(self) -> None:
        self._grip = self._lock.acquire()
        self.tell("elected")


class FairLockCandidate(LockCandidate):
    fair = True


class KazooCandidate(Candidate):
    """A thread that waits for kazoo's lock."""

    def __init__(self, address: StoreAddress, number: int) -> None:
        from benchmarks.clients.zookeeper import connected  # noqa: PLC0415  only where installed

        super().__init__(number)
        self._lock = connected(address).Lock(f"/{SERVICE}")

    @override
    def campaign(self) -> None:
        threading.Thread(target=self._acquire, daemon=True).start()

    @override
    def resign(self) -> None:
        self._lock.release()

    def _acquire(self) -> None:
        self._lock.acquire()
        self.tell("elected")


_SIDES: dict[str, Callable[[StoreAddress, int], Candidate]] = {
    "election": LibraryCandidate,
    "lock": LockCandidate,
    "fair lock": FairLockCandidate,
    "kazoo": KazooCandidate,
}


def main(side: str, address: str, first: str, number: str) -> None:
    numbers = range(int(first), int(first) + int(number))
    candidates = {one: _SIDES[side](StoreAddress.parse(address), one) for one in numbers}
    for candidate in candidates.values():
        candidate.campaign()
    candidates[int(first)].tell("ready")
    for line in sys.stdin:
        word, named = line.split()
        candidate = candidates[int(named)]
        if word == "resign":
            candidate.tell("resigned")
            candidate.resign()
        else:
            candidate.campaign()


if __name__ == "__main__":
    main(*sys.argv[1:])
