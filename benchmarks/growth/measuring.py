"""All rows of one store; each size of each row has a process and a deadline.

``python -m benchmarks.growth.measuring ROW ADDRESS N`` is such a process, and prints JSON.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

from benchmarks.growth.costs import FAILED, MISSED, named
from benchmarks.growth.rows import ROWS, sizes
from benchmarks.growth.targets import BOUNDS, judged
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

_MOST = 10_000
_AT_REST = {"CPU": "ms/s", "segments": "segments/s"}


def measure(address: StoreAddress, *, rows: int | None = None) -> list[Figure]:
    """Measure the store at *address*, up to sizes of *rows*."""
    return [one for row in ROWS for one in _row(row, address, rows or _MOST)]


def _row(row: str, address: StoreAddress, most: int) -> list[Figure]:
    figures: list[Figure] = []
    for size in sizes(row, address.store, most):
        new = list(_cell(row, address, size))
        figures += new
        if any(one.unit in {MISSED, FAILED} for one in new):
            break  # a larger size would not be done either
    return judged(address.store, figures, BOUNDS)


def _cell(row: str, address: StoreAddress, size: int) -> Iterator[Figure]:
    print(f"measuring: growth, {row}, {size}", file=sys.stderr)
    try:
        with address.fresh() as one:
            values = _run(row, one, size)
    except subprocess.TimeoutExpired as error:
        yield Figure(name=named(row, size), value=error.timeout, unit=MISSED)
        return
    except subprocess.CalledProcessError:  # which has written why to our standard error
        yield Figure(name=named(row, size), value=0, unit=FAILED)
        return
    for name, value in values.items():
        yield Figure(name=named(name, size), value=value, unit=_unit(name))


def _run(row: str, address: StoreAddress, size: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth.measuring", row, str(address), str(size)]
    values: dict[str, float] = json.loads(_output(command, ROWS[row].deadline_seconds))
    return values


def _output(command: list[str], deadline_seconds: float) -> str:
    """Return what *command* writes; no process is left, also after an error."""
    # A session of its own, so that its writer is ended with it.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            output, _ = child.communicate(timeout=deadline_seconds)
        finally:
            _end(child.pid)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return output


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _unit(name: str) -> str:
    if "over " in name:
        return "x"
    if name.startswith("at rest"):
        return _AT_REST.get(name.rpartition(": ")[2], "requests/s")
    if name.endswith("rate"):
        return "puts/s"
    return "requests" if "requests" in name else "ms"


def main(row: str, address: str, size: str) -> None:
    print(json.dumps(ROWS[row].measure(StoreAddress.parse(address), int(size))))


if __name__ == "__main__":
    main(*sys.argv[1:])
