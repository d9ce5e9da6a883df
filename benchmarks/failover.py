"""From the kill -9 of a leader to the next leader's ``on_elected`` in another process."""

import time
from collections.abc import Generator
from contextlib import ExitStack

from benchmarks.processes import Child, role
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

ROUNDS = 40
_NAME = "kill -9 to on_elected"
_SETTLE_SECONDS = 0.2


def measure(address: StoreAddress) -> list[Figure]:
    with ExitStack() as stack:
        samples = tuple(_handovers(address, stack))
    return [
        Figure.median(f"{_NAME}, median", samples, "ms", at_most=20),
        Figure.percentile(f"{_NAME}, p90", samples, "ms", 90),
    ]


def _handovers(address: StoreAddress, stack: ExitStack) -> Generator[float]:
    leader = stack.enter_context(_candidate(address, 0))
    leader.told("elected")
    for number in range(1, ROUNDS + 1):
        successor = stack.enter_context(_candidate(address, number))
        successor.told("nominated")
        time.sleep(_SETTLE_SECONDS)
        killed = leader.kill()
        yield (int(successor.told("elected")[1]) - killed) / 1e6
        leader = successor


def _candidate(address: StoreAddress, number: int) -> Child:
    return role("candidate", address, "service", f"candidate-{number}")
