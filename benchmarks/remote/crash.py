"""From the kill -9 of a leader to the next leader's ``on_elected`` in another process."""

import time
from collections.abc import Generator
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.figure import Figure, middle
from benchmarks.processes import Child
from benchmarks.remote.place import Place
from benchmarks.remote.roles import started

ROUNDS = 5
_SLACK = 1.15


class _Wait(NamedTuple):
    """How long a dead leader's claim is good for: the session, and what passes then."""

    session_seconds: float = 4.0
    later_seconds: float = 0.0
    unit: str = "x session timeout"


_WAITS = {
    "consul": _Wait(later_seconds=0.4, unit="x session timeout and lock-delay"),
    # It counts whole seconds, and one more: with a shorter session that would be all there is.
    "cassandra": _Wait(session_seconds=10.0),
}


def measure(place: Place) -> list[Figure]:
    wait = _WAITS.get(place.store, _Wait())
    with ExitStack() as stack:
        seconds = tuple(_handovers(place, wait.session_seconds, stack))
    shares = tuple(one / (wait.session_seconds + wait.later_seconds) for one in seconds)
    return [
        _figure("worst", max(shares), wait.unit, shares, _SLACK),
        _figure("median", middle(shares), wait.unit, shares),
        _figure("seconds at worst", max(seconds), "s", seconds),
    ]


def _handovers(place: Place, session_seconds: float, stack: ExitStack) -> Generator[float]:
    leader = _candidate(place, session_seconds, stack)
    leader.told("elected")
    for number in range(ROUNDS):
        heir = _candidate(place, session_seconds, stack)
        heir.told("campaigning")
        time.sleep(0.2 + number * 0.3)  # another moment between two heartbeats each time
        killed = leader.kill()
        yield (int(heir.told("elected")[1]) - killed) / 1e9
        leader = heir


def _candidate(place: Place, session_seconds: float, stack: ExitStack) -> Child:
    return stack.enter_context(started("mortal", place, session_seconds))


def _figure(
    name: str, value: float, unit: str, samples: tuple[float, ...], at_most: float | None = None
) -> Figure:
    return Figure(
        subject="crash",
        name=f"kill -9 to on_elected, {name}",
        value=value,
        unit=unit,
        at_most=at_most,
        samples=samples,
    )
