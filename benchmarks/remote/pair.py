"""Operations timed by pyperf, with kip30 and with the raw client, one right after the other.

A program of its own, for pyperf takes the whole command line:
``python -m benchmarks.remote.pair --worker --loops 40 -o FILE etcd=HOST:PORT get,put library raw``.
"""

from contextlib import closing
from importlib import import_module

from benchmarks.pair import timed
from benchmarks.remote.place import Place
from benchmarks.remote.sides import opened


def main() -> None:
    # It ships no types.
    runner = import_module("pyperf").Runner()
    runner.argparser.add_argument("place", type=Place.parse)
    runner.argparser.add_argument("operations")
    runner.argparser.add_argument("order", nargs=2)
    arguments = runner.parse_args()
    first, second = (opened(side, arguments.place) for side in arguments.order)
    with closing(first), closing(second):
        sides = dict(zip(arguments.order, (first, second), strict=True))
        for operation in arguments.operations.split(","):
            for name, side in sides.items():
                runner.bench_time_func(f"{operation} {name}", timed, getattr(side, operation))


if __name__ == "__main__":
    main()
