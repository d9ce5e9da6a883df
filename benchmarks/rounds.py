"""Ratios that the machine's moods cancel out of: many short rounds, each with both sides."""

import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.report.figure import Figure
from benchmarks.store_address import scratch

ROUNDS = 15
_TIMING = ("--worker", "--quiet", "--warmups", "1", "--values", "15")


def ratio(
    subject: str, operation: str, loops: int, *, at_least: float | None = None
) -> list[Figure]:
    """Return kip30's speed over the raw library's, and its time for one call."""
    rounds = [_round(subject, operation, loops, number) for number in range(ROUNDS)]
    return compared(operation, rounds, at_least=at_least)


def compared(
    operation: str,
    rounds: Sequence[tuple[float, float]],
    *,
    at_least: float | None = None,
) -> list[Figure]:
    """Return the figures of *rounds*, each the seconds of one call with kip30 and without."""
    ratios = [raw / library for library, raw in rounds]
    times = [library * 1e6 for library, _ in rounds]
    return [
        Figure.median(operation, ratios, "x raw", at_least=at_least),
        Figure.median(f"{operation}, one call", times, "us"),
    ]


def _round(subject: str, operation: str, loops: int, number: int) -> tuple[float, float]:
    """Return the seconds of one call with kip30 and with the raw library."""
    order = ["library", "raw"] if number % 2 else ["raw", "library"]
    with scratch() as folder:
        file = folder / "timings.json"
        program = [sys.executable, "-m", "benchmarks.pair", subject, operation, *order]
        timing = [*_TIMING, "--loops", str(loops), "--output", str(file)]
        subprocess.run([*program, *timing], check=True, stdout=subprocess.DEVNULL)
        suite: Any = import_module("pyperf").BenchmarkSuite.load(str(file))
        library, raw = (suite.get_benchmark(side).median() for side in ("library", "raw"))
    return library, raw
