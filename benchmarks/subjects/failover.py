"""From the kill -9 of a leader to the next leader's ``on_elected`` in another process.

The embedded store notices a death at once. On a server only the session timeout ends the claims of
a dead process, and is the unit.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.processes import Child
from benchmarks.report.figure import Figure, middle
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress

ROUNDS = 5
ROUNDS_EMBEDDED = 40
_SLACK = 1.15
_NAME = "kill -9 to on_elected"


class ClaimLifetime(NamedTuple):
    """The validity of a dead process's claim: the session, and the time that passes then."""

    session_seconds: float = 4.0
    later_seconds: float = 0.0
    unit: str = "x session timeout"

    @classmethod
    def on(cls, store: str) -> "ClaimLifetime":
        return _LIFETIMES.get(store, cls())

    @property
    def seconds(self) -> float:
        return self.session_seconds + self.later_seconds


_LIFETIMES = {
    "consul": ClaimLifetime(later_seconds=0.4, unit="x session timeout and lock-delay"),
    # It counts whole seconds, and one more: with a shorter session that would be all there is.
    "cassandra": ClaimLifetime(session_seconds=10.0),
}


def measure(address: StoreAddress) -> list[Figure]:
    lifetime = ClaimLifetime.on(address.store)
    with ExitStack() as stack:
        seconds = list(_handovers(address, lifetime.session_seconds, stack))
    if address.is_embedded:
        times = [one * 1e3 for one in seconds]
        return [
            Figure.median(f"{_NAME}, median", times, "ms", at_most=20),
            Figure.percentile(f"{_NAME}, p90", times, "ms", 90),
        ]
    return _in_lifetimes(seconds, lifetime)


def _in_lifetimes(seconds: Sequence[float], lifetime: ClaimLifetime) -> list[Figure]:
    shares = tuple(one / lifetime.seconds for one in seconds)
    worst, unit = max(shares), lifetime.unit
    return [
        Figure(name=f"{_NAME}, worst", value=worst, unit=unit, at_most=_SLACK, samples=shares),
        Figure(name=f"{_NAME}, median", value=middle(shares), unit=unit),
        Figure(name=f"{_NAME}, worst, in seconds", value=max(seconds), unit="s"),
    ]


def _handovers(address: StoreAddress, session_seconds: float, stack: ExitStack) -> Generator[float]:
    def candidate(number: int) -> Child:
        child = stack.enter_context(
            role("candidates", "library", address, number, 1, session_seconds)
        )
        child.send(f"campaign {number}")
        return child

    # Another moment between two heartbeats each time.
    step = 0 if address.is_embedded else 0.3
    leader = candidate(0)
    leader.expect("elected")
    for number in range(ROUNDS_EMBEDDED if address.is_embedded else ROUNDS):
        successor = candidate(number + 1)
        successor.expect("campaigning")
        time.sleep(0.2 + number * step)
        killed = leader.kill()
        *_, elected = successor.expect("elected")
        yield (int(elected) - killed) / 1e9
        leader = successor
