"""A leader that resigns, or a lock released, among many that wait: the time until the next one."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from queue import Empty
from typing import TypeVar

from benchmarks.process_use import cpu_milliseconds, segments_sent
from benchmarks.processes import Child
from benchmarks.report.figure import middle
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress

NEXT = {
    side: f"{side}: from giving up to the next one" for side in ("election", "lock", "fair lock")
}
_ROLES = {"election": "library", "lock": "lock", "fair lock": "fair lock", "kazoo": "kazoo"}
OVER_KAZOO = {side: f"{name}, over kazoo's lock" for side, name in NEXT.items()}
ROUNDS = 30

_PROCESSES = 4
_SETTLE_SECONDS = 0.2
_REST_SECONDS = 2.0
_PATIENCE_SECONDS = 100.0

T = TypeVar("T")


def hand_over(
    address: StoreAddress, size: int, sides: tuple[str, ...] = tuple(NEXT)
) -> dict[str, float]:
    """Return ms from giving up to the next one's callback, and what all clients spent for that.

    On ZooKeeper the same is measured of kazoo's lock.
    """
    values: dict[str, float] = {}
    for side in sides:
        values |= _measured(side, address, size)
    if address.store == "zookeeper":
        kazoo = _measured("kazoo", address, size)
        values |= kazoo
        of_kazoo = kazoo["kazoo: from giving up to the next one"]
        values |= {OVER_KAZOO[side]: values[NEXT[side]] / of_kazoo for side in sides}
    return values


def _measured(side: str, address: StoreAddress, size: int) -> dict[str, float]:
    with ExitStack() as stack:
        waiting = _WaitingCandidates(stack, side, address, size)
        rest, waits = waiting.spent(lambda: time.sleep(_REST_SECONDS)), list[float]()
        spent = waiting.spent(lambda: waits.extend(waiting.hand_over() for _ in range(ROUNDS)))
    name, share = f"{side}: from giving up to the next one", spent["s"] / rest["s"]
    cost = {
        f"{side}: {what} of all clients": max(spent[what] - rest[what] * share, 0) / ROUNDS
        for what in ("requests", "CPU")
    }
    return {name: middle(waits), f"{name}, slowest": max(waits), **cost}


class _WaitingCandidates:
    """Some processes with *size* candidates in all, each with a session of its own."""

    def __init__(self, stack: ExitStack, side: str, address: StoreAddress, size: int) -> None:
        self._children = list[Child]()
        self._each = -(-size // _PROCESSES)
        # The moments, in nanoseconds, at which each candidate was elected and resigned last.
        self._moments = dict[tuple[str, int], int]()
        for first in range(0, size, self._each):
            number = min(self._each, size - first)
            child = stack.enter_context(role("candidates", _ROLES[side], address, first, number))
            self._children.append(child)
            for one in range(first, first + number):
                child.send(f"campaign {one}")
            self._until(partial(self._moments.get, ("campaigning", first + number - 1)))
        self._leader = self._next_leader()

    def hand_over(self) -> float:
        """Make the leader resign, and return the milliseconds until the next one knows."""
        time.sleep(_SETTLE_SECONDS)
        leader = self._leader
        self._moments.clear()
        child = self._children[leader // self._each]
        child.send(f"resign {leader}")
        self._leader = self._next_leader()
        self._until(partial(self._moments.get, ("resigned", leader)))
        child.send(f"campaign {leader}")
        return (self._moments["elected", self._leader] - self._moments["resigned", leader]) / 1e6

    def spent(self, action: Callable[[], object]) -> dict[str, float]:
        """Return what all processes send and use while *action* runs."""
        before = self._sums()
        action()
        return {name: value - before[name] for name, value in self._sums().items()}

    def _sums(self) -> dict[str, float]:
        processes = [child.pid for child in self._children]
        return {
            "s": time.monotonic(),
            "requests": segments_sent(processes),
            "CPU": cpu_milliseconds(processes),
        }

    def _next_leader(self) -> int:
        return self._until(
            lambda: next((one for word, one in self._moments if word == "elected"), None)
        )

    def _until(self, found: Callable[[], T | None]) -> T:
        """Listen to all processes until something was *found*."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for child in self._children:
                try:
                    line = child.out.get(timeout=0.001)
                except Empty:
                    continue
                assert line is not None, child.err.get()
                word, one, moment = line.text.split()
                self._moments[word, int(one)] = int(moment)
            if (result := found()) is not None:
                return result
        raise TimeoutError("there was no next one")
