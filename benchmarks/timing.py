"""Durations of calls, by the wall clock and of the process's CPU time."""

import time
from collections.abc import Callable
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
