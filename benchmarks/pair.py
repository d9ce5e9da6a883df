"""Operations timed by pyperf, with kip30 and with the raw client, one right after the other.

A program of its own, for pyperf takes the whole command line:
``python -m benchmarks.pair --worker --loops 40 -o FILE etcd=HOST:PORT get,put library raw``.
"""

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import import_module

from benchmarks.clients.interfaces import Prepared, Side
from benchmarks.clients.opening import side
from benchmarks.store_address import StoreAddress


def main() -> None:
    # It ships no types.
    runner = import_module("pyperf").Runner()
    runner.argparser.add_argument("address", type=StoreAddress.parse)
    runner.argparser.add_argument("operations")
    runner.argparser.add_argument("order", nargs=2)
    arguments = runner.parse_args()
    # Two embedded stores would write to one disk, and one has threads that would slow the other.
    embedded = arguments.address.is_embedded
    for names in [[name] for name in arguments.order] if embedded else [arguments.order]:
        with ExitStack() as stack:
            sides = {name: stack.enter_context(_opened(name, arguments.address)) for name in names}
            for operation in arguments.operations.split(","):
                for one in sides.values():
                    one.prepared(operation, 0)  # on both sides, before anything is timed
                for name, one in sides.items():
                    prepare = partial(one.prepared, operation)
                    runner.bench_time_func(f"{operation} {name}", _timed, prepare)


@contextmanager
def _opened(name: str, address: StoreAddress) -> Generator[Side]:
    with address.fresh() as one, closing(side(name, one)) as opened:
        yield opened


def _timed(loops: int, prepare: Callable[[int], Prepared]) -> float:
    operation, calls = prepare(loops)
    start = time.perf_counter()
    deque((operation(*call) for call in calls), maxlen=0)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
