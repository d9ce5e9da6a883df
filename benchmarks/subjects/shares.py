"""From the kill -9 of one ``kip30 coordinate`` to the next command for its items, in another one.

The floor is a session timeout where only that ends the claims of a dead process. The embedded store
notices a death at once; there it is a start of a shell, for each command says itself when it
begins. Every command that gets an item of the killed one is ended first, because its share grows.
"""

import sys
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.processes import Child
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress
from benchmarks.subjects.failover import ClaimLifetime

RUNNERS = 2
RUNNERS_EMBEDDED = (2, 10)
"""Numbers of runners that divide the items, each measured alone."""
ROUNDS = 5
ROUNDS_EMBEDDED = 15
ITEMS = 20
_SETTLE_SECONDS = 0.5
_COMMAND = ("sh", "-c", 'echo "begun $KIP30_SHARE"; exec sleep 600')
_NAME = "kill -9 of one of {} to the next command for its items"


class _Share(NamedTuple):
    items: frozenset[str]
    since: int


def measure(address: StoreAddress) -> list[Figure]:
    if address.is_embedded:
        return [one for runners in RUNNERS_EMBEDDED for one in _in_milliseconds(address, runners)]
    return _in_lifetimes(address)


def _in_milliseconds(address: StoreAddress, runners: int) -> list[Figure]:
    samples = _takeovers(address.settings(), runners, ROUNDS_EMBEDDED)
    name = _NAME.format(runners)
    at_most = 150 if runners == RUNNERS else None
    return [
        Figure.median(f"{name}, median", samples, "ms", at_most=at_most),
        Figure.percentile(f"{name}, p90", samples, "ms", 90),
    ]


def _in_lifetimes(address: StoreAddress) -> list[Figure]:
    lifetime = ClaimLifetime.on(address.store)
    chosen = address.settings("shares", lifetime.session_seconds)
    shares = tuple(one / 1e3 / lifetime.seconds for one in _takeovers(chosen, RUNNERS, ROUNDS))
    name, unit = _NAME.format(RUNNERS), lifetime.unit
    return [
        Figure(name=f"{name}, worst", value=max(shares), unit=unit, samples=shares),
        Figure.median(f"{name}, median", shares, unit),
    ]


def _takeovers(chosen: Mapping[str, str], runners: int, rounds: int) -> list[float]:
    """Return the milliseconds from each of *rounds* kills to the last command for the items."""
    with ExitStack() as stack:
        group = _RunnerGroup(chosen, f"{runners}-runners", stack)
        for _ in range(runners):
            group.add()
        return [group.takeover() for _ in range(rounds)]


class _RunnerGroup:
    """Runners, and what the command of each has begun with last."""

    def __init__(self, chosen: Mapping[str, str], name: str, stack: ExitStack) -> None:
        self._arguments = [
            *(f"--set={key}={value}" for key, value in chosen.items()),
            f"--group={name}",
            f"--shards={ITEMS}",
        ]
        self._stack = stack
        self._shares: dict[Child, _Share] = {}

    def add(self) -> None:
        """Start one more runner, and wait until all items are in commands again."""
        command = [sys.executable, "-m", "kip30", "coordinate", *self._arguments]
        self._shares[self._stack.enter_context(Child([*command, "--", *_COMMAND]))] = _NOTHING
        while any(not share.items for share in self._shares.values()) or not self._is_whole():
            self._listen()
        time.sleep(_SETTLE_SECONDS)

    def takeover(self) -> float:
        """Kill the runner of the oldest, which leads, and replace it afterwards."""
        victim = next(iter(self._shares))
        lost = self._shares.pop(victim)
        killed = victim.kill()
        while not self._is_whole():
            self._listen()
        arrived = max(one.since for one in self._shares.values() if one.items & lost.items)
        self.add()
        return (arrived - killed) / 1e6

    def _is_whole(self) -> bool:
        return sum(len(share.items) for share in self._shares.values()) == ITEMS

    def _listen(self) -> None:
        for runner in list(self._shares):
            for line in _new_lines(runner):
                self._shares[runner] = line
        time.sleep(0.001)


_NOTHING = _Share(frozenset(), 0)


def _new_lines(runner: Child) -> Generator[_Share]:
    while not runner.out.empty():
        line = runner.line()
        words: Iterable[str] = line.text.split()[1:]
        yield _Share(frozenset(words), line.arrived)
