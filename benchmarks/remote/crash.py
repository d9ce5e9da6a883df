"""From the kill -9 of a leader to the next leader's ``on_elected`` in another process."""

import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.processes import Child
from benchmarks.remote.roles import started
from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress

ROUNDS = 5
_SLACK = 1.15
_NAME = "kill -9 to on_elected"


class Wait(NamedTuple):
    """The validity of a dead leader's claim: the session, and the time that passes then."""

    session_seconds: float = 4.0
    later_seconds: float = 0.0
    unit: str = "x session timeout"


_WAITS = {
    "consul": Wait(later_seconds=0.4, unit="x session timeout and lock-delay"),
    # It counts whole seconds, and one more: with a shorter session that would be all there is.
    "cassandra": Wait(session_seconds=10.0),
}


def lasting(store: str) -> Wait:
    """Return how long the claim of a dead process lasts on *store*."""
    return _WAITS.get(store, Wait())


def measure(address: StoreAddress) -> list[Figure]:
    wait = lasting(address.store)
    with ExitStack() as stack:
        seconds = tuple(_handovers(address, wait.session_seconds, stack))
    shares = tuple(one / (wait.session_seconds + wait.later_seconds) for one in seconds)
    return [
        Figure(
            name=f"{_NAME}, worst",
            value=max(shares),
            unit=wait.unit,
            at_most=_SLACK,
            samples=shares,
        ),
        Figure(name=f"{_NAME}, median", value=middle(shares), unit=wait.unit),
        Figure(name=f"{_NAME}, worst, in seconds", value=max(seconds), unit="s"),
    ]


def _handovers(address: StoreAddress, session_seconds: float, stack: ExitStack) -> Generator[float]:
    leader = _candidate(address, session_seconds, stack)
    leader.told("elected")
    for number in range(ROUNDS):
        successor = _candidate(address, session_seconds, stack)
        successor.told("campaigning")
        time.sleep(0.2 + number * 0.3)  # another moment between two heartbeats each time
        killed = leader.kill()
        yield (int(successor.told("elected")[1]) - killed) / 1e9
        leader = successor


def _candidate(address: StoreAddress, session_seconds: float, stack: ExitStack) -> Child:
    return stack.enter_context(started("mortal", address, session_seconds))
