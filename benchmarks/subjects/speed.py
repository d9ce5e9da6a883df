"""Operations against the raw client doing the same requests.

There are many short rounds, each with both sides, so that a slow spell of the machine hits both.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress, scratch

_ROUNDS = 7
_ROUNDS_EMBEDDED = 15

_SINGLE = ("get", "put", "update", "compare_and_set", "join", "get_leader")
_LEAST = {"zookeeper": 0.9, "etcd": 0.9, "consul": 0.8, "cassandra": 0.9}
_NOT_AIMED_AT = {"compare_and_set"}
_LEAST_IN_FLIGHT = 0.8
_LEAST_OF_A_GROUP = {"zookeeper": 5.0, "etcd": 0.9}


class Batch(NamedTuple):
    """Operations that are timed in one process, with *loops* calls for each value.

    *at_least* has the target of each operation, for the speed of kip30 over the raw client's.
    """

    loops: int
    at_least: Mapping[str, float | None]

    def measured(self, address: StoreAddress) -> Iterator[Figure]:
        """Yield two figures of each operation: the ratio, and the time of one call with kip30."""
        number = _ROUNDS_EMBEDDED if address.is_embedded else _ROUNDS
        rounds = [self._round(address, one, number) for one in range(number)]
        for operation, at_least in self.at_least.items():
            pairs = [one[operation] for one in rounds]
            ratios = [raw / library for library, raw in pairs]
            times = [library * 1e6 for library, _ in pairs]
            yield Figure.median(operation, ratios, "x raw", at_least=at_least)
            yield Figure.median(f"{operation}, one call", times, "us")

    def _round(
        self, address: StoreAddress, number: int, values: int
    ) -> dict[str, tuple[float, float]]:
        """Return the seconds of one call of each operation, with kip30 and with the raw client."""
        order = ["library", "raw"] if number % 2 else ["raw", "library"]
        with scratch() as folder:
            file = folder / "timings.json"
            what = [str(address), ",".join(self.at_least), *order]
            timing = ["--worker", "--quiet", "--warmups", "1", "--values", str(values)]
            program = [sys.executable, "-m", "benchmarks.pair", *what, *timing]
            command = [*program, "--loops", str(self.loops), "--output", str(file)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            suite: Any = import_module("pyperf").BenchmarkSuite.load(str(file))
        return {operation: _times(suite, operation) for operation in self.at_least}


def measure(address: StoreAddress) -> list[Figure]:
    least = _LEAST[address.store]
    single = {one: None if one in _NOT_AIMED_AT else least for one in _SINGLE}
    many = {"in_flight": _LEAST_IN_FLIGHT, "group": _LEAST_OF_A_GROUP.get(address.store)}
    return [*Batch(40, single).measured(address), *Batch(2, many).measured(address)]


def _times(suite: Any, operation: str) -> tuple[float, float]:
    library, raw = (
        suite.get_benchmark(f"{operation} {side}").median() for side in ("library", "raw")
    )
    return library, raw
