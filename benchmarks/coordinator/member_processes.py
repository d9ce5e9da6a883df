"""A group of several processes, and the time it takes to divide its work again."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import psutil

from benchmarks.process_use import cpu_milliseconds, requests_sent
from benchmarks.processes import Child, started
from benchmarks.store_address import StoreAddress

PROCESSES = 10
_MODULE = "benchmarks.coordinator.members"
_SETTLE_SECONDS = 0.3
_PATIENCE_SECONDS = 600.0
"""A thousand members join one after the other."""


class Taken(NamedTuple):
    """The share that members of one process have taken up, and the moment when the last one had."""

    generation: int = -1
    members: int = 0
    items: int = 0
    leads: bool = False
    moment: int = 0


class Use(NamedTuple):
    """The use of all processes so far, or in a second: ms of CPU, and requests."""

    cpu: float
    requests: float


class Round(NamedTuple):
    """One rebalance: its ms, and the use of all processes for it beyond a rest as long."""

    wall: float
    use: Use


class Held(NamedTuple):
    """Threads and MiB of memory of all processes."""

    threads: int
    memory: float


class MemberProcesses:
    """Processes with *each* members, and a spare one whose member comes and goes."""

    def __init__(
        self,
        stack: ExitStack,
        address: StoreAddress,
        session_seconds: float,
        *,
        each: int,
        items: int,
    ) -> None:
        self.namespace = f"rebalance-{each}"
        self._stack, self._address, self._each, self._items = stack, address, each, items
        self._arguments = (address, self.namespace, session_seconds, items)
        self._taken: dict[Child, Taken] = {}
        self._generation = 0
        self._rest = Use(0, 0)
        self._spare = self._opened()
        self._spare_has_member = False
        self.refill()

    @property
    def children(self) -> list[Child]:
        return [self._spare, *(child for child in self._taken if child is not self._spare)]

    def refill(self) -> None:
        """Start processes until there are as many as at first, and wait for their shares."""
        missing = PROCESSES - (len(self.children) - 1)
        new = [self._opened() for _ in range(missing)]
        for child in new:
            self._taken[child] = Taken()
            child.send(f"start {self._each}")
            child.expect("began")
        self._await_shared()

    def join(self) -> Round:
        """Make one member join."""
        self._taken[self._spare] = Taken()
        self._spare_has_member = True
        return self._measured(lambda: self._cause("start 1"))

    def leave(self) -> Round:
        """Make the same member leave."""
        del self._taken[self._spare]
        self._spare_has_member = False
        return self._measured(lambda: self._cause("leave"))

    def kill(self, *, leader: bool) -> float:
        """Kill the process of the leader, or another one; return the ms until all is shared."""
        chosen = next(
            child
            for child, taken in self._taken.items()
            if taken.leads is leader and child is not self._spare
        )
        del self._taken[chosen]
        killed = chosen.kill()
        chosen.end()
        return (self._await_shared() - killed) / 1e6

    def rest(self, seconds: float) -> Use:
        """Return the use of all processes per second, over *seconds*; rounds count without it."""
        before, began = self._use(), time.monotonic()
        time.sleep(seconds)
        use, took = self._use(), time.monotonic() - began
        self._rest = Use(*((after - was) / took for after, was in zip(use, before, strict=True)))
        return self._rest

    def held(self) -> Held:
        """Return what the processes of the members hold, without the spare one."""
        members = [psutil.Process(child.pid) for child in self._taken]
        memory = sum(one.memory_info().rss for one in members) / 2**20
        return Held(sum(one.num_threads() for one in members), memory)

    def _opened(self) -> Child:
        child = self._stack.enter_context(started(_MODULE, *self._arguments))
        child.expect("ready")
        return child

    def _cause(self, line: str) -> int:
        self._spare.send(line)
        return int(self._spare.expect("began")[1])

    def _measured(self, cause: Callable[[], int]) -> Round:
        time.sleep(_SETTLE_SECONDS)
        before, since = self._use(), time.monotonic()
        began = cause()
        wall = (self._await_shared() - began) / 1e6
        time.sleep(_SETTLE_SECONDS)
        after, took = self._use(), time.monotonic() - since
        used = (
            max(now - was - rest * took, 0)
            for now, was, rest in zip(after, before, self._rest, strict=True)
        )
        return Round(wall, Use(*used))

    def _use(self) -> Use:
        processes = [child.pid for child in self.children]
        return Use(cpu_milliseconds(processes), requests_sent(self._address, processes))

    def _await_shared(self) -> int:
        """Wait until all members share all items in one generation; return the last moment."""
        while not self._is_shared():
            behind = min(self._taken, key=lambda child: self._taken[child].generation)
            self._hear(behind)
        self._generation = next(iter(self._taken.values())).generation
        return max(taken.moment for taken in self._taken.values())

    def _is_shared(self) -> bool:
        all_taken = self._taken.values()
        members = self._each * (len(self.children) - 1) + self._spare_has_member
        return (
            len({taken.generation for taken in all_taken}) == 1
            and next(iter(all_taken)).generation > self._generation
            and sum(taken.members for taken in all_taken) == members
            and sum(taken.items for taken in all_taken) == self._items
        )

    def _hear(self, child: Child) -> None:
        _, generation, members, items, leads, moment = child.expect("took", _PATIENCE_SECONDS)
        self._taken[child] = Taken(
            int(generation), int(members), int(items), leads == "1", int(moment)
        )
