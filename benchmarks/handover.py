"""From the kill -9 of the leading ``kip30 run`` to the first line of the next one's command."""

import sys
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.processes import Child
from benchmarks.report.figure import Figure, middle, percentile
from benchmarks.stores import scratch, settings

ROUNDS = 30
_SETTLE_SECONDS = 0.5
_COMMAND = ("sh", "-c", "echo begun; exec sleep 600")


def measure() -> list[Figure]:
    with scratch() as folder, ExitStack() as stack:
        samples = tuple(_handovers(folder, stack))
    return [
        _figure("median", middle(samples), samples, 150),
        _figure("p90", percentile(samples, 90), samples, None),
    ]


def _handovers(folder: Path, stack: ExitStack) -> Generator[float]:
    leader = stack.enter_context(_runner(folder))
    leader.line()
    for _ in range(ROUNDS):
        successor = stack.enter_context(_runner(folder))
        successor.complaint()  # it waits
        time.sleep(_SETTLE_SECONDS)
        killed = leader.kill()
        yield (successor.line().arrived - killed) / 1e6
        leader = successor


def _runner(folder: Path) -> Child:
    chosen = [f"--set={key}={value}" for key, value in settings(folder).items()]
    command = [sys.executable, "-m", "kip30", "run", "--service", "bench", *chosen]
    return Child([*command, "--", *_COMMAND])


def _figure(name: str, value: float, samples: tuple[float, ...], at_most: float | None) -> Figure:
    return Figure(
        subject="runner",
        name=f"kill -9 to the next command's first line, {name}",
        value=value,
        unit="ms",
        at_most=at_most,
        samples=samples,
    )
