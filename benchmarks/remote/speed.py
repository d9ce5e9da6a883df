"""Operations against the raw client doing the same requests."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.figure import Figure
from benchmarks.remote.place import Place
from benchmarks.rounds import compared
from benchmarks.stores import scratch

ROUNDS = 7
_TIMING = ("--worker", "--quiet", "--warmups", "1", "--values", "7")


class Batch(NamedTuple):
    """Operations that are timed in one process, with so many calls for each value."""

    loops: int
    at_least: dict[str, float | None]


_SINGLE = Batch(
    40,
    {
        "get": 0.9,
        "put": 0.9,
        "update": 0.9,
        "compare_and_set": None,
        "join": 0.9,
        "get_leader": 0.9,
    },
)
_BULK = {
    "zookeeper": Batch(2, {"in_flight": 0.8, "group": 5}),
    "etcd": Batch(2, {"in_flight": 0.8, "group": 0.9}),
}


def measure(place: Place) -> list[Figure]:
    return [*_measured(place, _SINGLE), *_measured(place, _BULK[place.store])]


def _measured(place: Place, batch: Batch) -> Iterator[Figure]:
    rounds = [_round(place, batch, number) for number in range(ROUNDS)]
    for operation, at_least in batch.at_least.items():
        pairs = [one[operation] for one in rounds]
        yield from compared("speed", operation, pairs, at_least=at_least)


def _round(place: Place, batch: Batch, number: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of one call of each operation, with kip30 and with the raw client."""
    order = ["library", "raw"] if number % 2 else ["raw", "library"]
    with scratch() as folder:
        file = folder / "timings.json"
        _run(str(place), ",".join(batch.at_least), *order, batch=batch, file=str(file))
        suite: Any = import_module("pyperf").BenchmarkSuite.load(str(file))
    return {
        operation: _times(suite, [f"{operation} library", f"{operation} raw"])
        for operation in batch.at_least
    }


def _run(*arguments: str, batch: Batch, file: str) -> None:
    program = [sys.executable, "-m", "benchmarks.remote.pair", *arguments]
    timing = [*_TIMING, "--loops", str(batch.loops), "--output", file]
    subprocess.run([*program, *timing], check=True, stdout=subprocess.DEVNULL)


def _times(suite: Any, names: Sequence[str]) -> tuple[float, float]:
    library, raw = (suite.get_benchmark(name).median() for name in names)
    return library, raw
