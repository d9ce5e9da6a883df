"""From the kill -9 of a leader to the next leader's ``on_elected`` in another process."""

import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.processes import Child, role
from benchmarks.report.figure import Figure
from benchmarks.stores import scratch

ROUNDS = 40
_NAME = "kill -9 to on_elected"
_SETTLE_SECONDS = 0.2


def measure() -> list[Figure]:
    with scratch() as folder, ExitStack() as stack:
        samples = tuple(_handovers(folder, stack))
    return [
        Figure.median(f"{_NAME}, median", samples, "ms", at_most=20),
        Figure.percentile(f"{_NAME}, p90", samples, "ms", 90),
    ]


def _handovers(folder: Path, stack: ExitStack) -> Generator[float]:
    leader = stack.enter_context(_candidate(folder, 0))
    leader.told("elected")
    for number in range(1, ROUNDS + 1):
        successor = stack.enter_context(_candidate(folder, number))
        successor.told("nominated")
        time.sleep(_SETTLE_SECONDS)
        killed = leader.kill()
        yield (int(successor.told("elected")[1]) - killed) / 1e6
        leader = successor


def _candidate(folder: Path, number: int) -> Child:
    return role("candidate", folder, "service", f"candidate-{number}")
