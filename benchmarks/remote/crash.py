"""From the kill -9 of a leader to the next leader's ``on_elected`` in another process."""

import time
from collections.abc import Generator
from contextlib import ExitStack

from benchmarks.figure import Figure, middle
from benchmarks.processes import Child
from benchmarks.remote.place import Place
from benchmarks.remote.roles import started

ROUNDS = 5
SESSION_SECONDS = 4.0


def measure(place: Place) -> list[Figure]:
    with ExitStack() as stack:
        samples = tuple(_handovers(place, stack))
    return [
        _figure("worst", max(samples), samples, 1.15),
        _figure("median", middle(samples), samples, None),
    ]


def _handovers(place: Place, stack: ExitStack) -> Generator[float]:
    leader = _candidate(place, stack)
    leader.told("elected")
    for number in range(ROUNDS):
        heir = _candidate(place, stack)
        heir.told("campaigning")
        time.sleep(0.2 + number * 0.3)  # another moment between two heartbeats each time
        killed = leader.kill()
        yield (int(heir.told("elected")[1]) - killed) / 1e9 / SESSION_SECONDS
        leader = heir


def _candidate(place: Place, stack: ExitStack) -> Child:
    return stack.enter_context(started("mortal", place, SESSION_SECONDS))


def _figure(name: str, value: float, samples: tuple[float, ...], at_most: float | None) -> Figure:
    return Figure(
        subject="crash",
        name=f"kill -9 to on_elected, {name}",
        value=value,
        unit="x session timeout",
        at_most=at_most,
        samples=samples,
    )
