"""One row at one size, in a process of its own: ``python -m benchmarks.growth.cell ROW SPOT N``."""

import json
import sys

from benchmarks.growth.rows import ROWS
from benchmarks.growth.spot import Spot


def main(row: str, spot: str, size: str) -> None:
    print(json.dumps(ROWS[row].measure(Spot.parse(spot), int(size))))


if __name__ == "__main__":
    main(*sys.argv[1:])
