"""One row at one size, in a process of its own: ``python -m benchmarks.growth.cell ROW SPOT N``."""

import json
import sys

from benchmarks.growth.rows import ROWS
from benchmarks.store_address import StoreAddress


def main(row: str, address: str, size: str) -> None:
    print(json.dumps(ROWS[row].measure(StoreAddress.parse(address), int(size))))


if __name__ == "__main__":
    main(*sys.argv[1:])
