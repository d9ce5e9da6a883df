"""From the kill -9 of the leading ``kip30 run`` to the first line of the next one's command."""

import sys
import time
from collections.abc import Generator
from contextlib import ExitStack

from benchmarks.processes import Child
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

ROUNDS = 30
_NAME = "kill -9 to the next command's first line"
_SETTLE_SECONDS = 0.5
_COMMAND = ("sh", "-c", "echo begun; exec sleep 600")


def measure(address: StoreAddress) -> list[Figure]:
    with ExitStack() as stack:
        samples = tuple(_handovers(address, stack))
    return [
        Figure.median(f"{_NAME}, median", samples, "ms", at_most=150),
        Figure.percentile(f"{_NAME}, p90", samples, "ms", 90),
    ]


def _handovers(address: StoreAddress, stack: ExitStack) -> Generator[float]:
    leader = stack.enter_context(_runner(address))
    leader.line()
    for _ in range(ROUNDS):
        successor = stack.enter_context(_runner(address))
        successor.error_line()  # it waits
        time.sleep(_SETTLE_SECONDS)
        killed = leader.kill()
        yield (successor.line().arrived - killed) / 1e6
        leader = successor


def _runner(address: StoreAddress) -> Child:
    chosen = [f"--set={key}={value}" for key, value in address.settings().items()]
    command = [sys.executable, "-m", "kip30", "run", "--service", "bench", *chosen]
    return Child([*command, "--", *_COMMAND])
