"""Durations of calls, by the wall clock and of the process's CPU time."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Spent(NamedTuple):
    """Seconds by the wall clock, and of the process's CPU time."""

    wall: float
    cpu: float


def spent(call: Callable[[], object]) -> Spent:
    """Return what *call* takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def both_spent(
    one: Callable[[], object], other: Callable[[], object], turn: int
) -> tuple[Spent, Spent]:
    """Return what both take, whose order alternates with *turn*."""
    if turn % 2:
        first = spent(one)
        return first, spent(other)
    first = spent(other)
    return spent(one), first


def seconds_of(call: Callable[[], object]) -> float:
    """Return what *call* takes by the wall clock."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def in_turn(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Make each of *calls* in each round, so that a slow spell of the machine hits all alike.

    Returns:
        The seconds of each call, by its name.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(seconds_of(call))
    return taken
