"""Operations against the raw client doing the same requests."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.report.figure import Figure
from benchmarks.rounds import compared
from benchmarks.store_address import StoreAddress, scratch

ROUNDS = 7
_TIMING = ("--worker", "--quiet", "--warmups", "1", "--values", "7")


class Batch(NamedTuple):
    """Operations that are timed in one process, with *loops* calls for each value."""

    loops: int
    at_least: Mapping[str, float | None]


_SINGLE = ("get", "put", "update", "compare_and_set", "join", "get_leader")
_LEAST = {"zookeeper": 0.9, "etcd": 0.9, "consul": 0.8, "cassandra": 0.9}
_NOT_AIMED_AT = {"compare_and_set"}
_LEAST_IN_FLIGHT = 0.8
_LEAST_OF_A_GROUP = {"zookeeper": 5.0, "etcd": 0.9}


def measure(address: StoreAddress) -> list[Figure]:
    least = _LEAST[address.store]
    single = {one: None if one in _NOT_AIMED_AT else least for one in _SINGLE}
    many = {"in_flight": _LEAST_IN_FLIGHT, "group": _LEAST_OF_A_GROUP.get(address.store)}
    return [*_measured(address, Batch(40, single)), *_measured(address, Batch(2, many))]


def _measured(address: StoreAddress, batch: Batch) -> Iterator[Figure]:
    rounds = [_round(address, batch, number) for number in range(ROUNDS)]
    for operation, at_least in batch.at_least.items():
        pairs = [one[operation] for one in rounds]
        yield from compared(operation, pairs, at_least=at_least)


def _round(address: StoreAddress, batch: Batch, number: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of one call of each operation, with kip30 and with the raw client."""
    order = ["library", "raw"] if number % 2 else ["raw", "library"]
    with scratch() as folder:
        file = folder / "timings.json"
        _run(str(address), ",".join(batch.at_least), *order, batch=batch, file=str(file))
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
