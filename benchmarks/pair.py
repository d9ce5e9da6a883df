"""One operation timed by pyperf, with kip30 and with the raw library, one right after the other.

A program of its own, for pyperf takes the whole command line:
``python -m benchmarks.pair --worker --loops 1000 --warmups 1 -o FILE storage get library raw``.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from typing import Any

from benchmarks.group import LibraryGroup, RawGroup
from benchmarks.library import Library, Prepared
from benchmarks.raw import Raw
from benchmarks.store_address import scratch

SIDES: dict[str, dict[str, Any]] = {
    "storage": {"library": Library, "raw": Raw},
    "group": {"library": LibraryGroup, "raw": RawGroup},
}


def main() -> None:
    # It ships no types.
    runner = import_module("pyperf").Runner()
    runner.argparser.add_argument("subject", choices=SIDES)
    runner.argparser.add_argument("operation")
    runner.argparser.add_argument("order", nargs=2)
    arguments = runner.parse_args()
    for side in arguments.order:
        opened = SIDES[arguments.subject][side]
        with scratch() as folder, closing(opened(folder)) as operations:
            prepare = getattr(operations, arguments.operation)
            runner.bench_time_func(side, timed, prepare)


def timed(loops: int, prepare: Callable[[int], Prepared]) -> float:
    operation, calls = prepare(loops)
    start = time.perf_counter()
    deque((operation(*call) for call in calls), maxlen=0)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
