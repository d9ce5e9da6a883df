"""Operations timed by pyperf, with kip30 and with the raw client, one right after the other.

A program of its own, for pyperf takes the whole command line:
``python -m benchmarks.remote.pair --worker --loops 40 -o FILE etcd=HOST:PORT get,put library raw``.
"""

from contextlib import closing
from functools import partial
from importlib import import_module

from benchmarks.pair import timed
from benchmarks.remote.side import Preparation
from benchmarks.remote.sides import side
from benchmarks.store_address import StoreAddress


def main() -> None:
    # It ships no types.
    runner = import_module("pyperf").Runner()
    runner.argparser.add_argument("address", type=StoreAddress.parse)
    runner.argparser.add_argument("operations")
    runner.argparser.add_argument("order", nargs=2)
    arguments = runner.parse_args()
    first, second = (side(name, arguments.address) for name in arguments.order)
    with closing(first), closing(second):
        sides = [Preparation(one) for one in (first, second)]
        for operation in arguments.operations.split(","):
            prepares = [partial(one.of, operation) for one in sides]
            for prepare in prepares:
                prepare(0)  # on both sides, before anything is timed
            for name, prepare in zip(arguments.order, prepares, strict=True):
                runner.bench_time_func(f"{operation} {name}", timed, prepare)


if __name__ == "__main__":
    main()
