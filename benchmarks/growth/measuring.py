"""All rows of one store; each size of each row has a process and a deadline."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

from benchmarks.growth.naming import FAILED, MISSED, named
from benchmarks.growth.rows import BOUNDS, ROWS, sizes
from benchmarks.growth.spot import Spot
from benchmarks.growth.targets import judged
from benchmarks.report.figure import Figure
from benchmarks.stores import scratch

_MOST = 10_000
_AT_REST = {"CPU": "ms/s", "segments": "segments/s"}


def measure(place: tuple[str, str] | None = None, *, rows: int | None = None) -> list[Figure]:
    """Measure the store at *place*, or an embedded one, up to sizes of *rows*."""
    return [one for row in ROWS for one in _row(row, place, rows or _MOST)]


def _row(row: str, place: tuple[str, str] | None, most: int) -> list[Figure]:
    store = place[0] if place else "embedded"
    figures: list[Figure] = []
    for size in sizes(row, store, most):
        new = list(_cell(row, place, size))
        figures += new
        if any(one.unit in {MISSED, FAILED} for one in new):
            break  # a larger size would not be done either
    return judged(store, figures, BOUNDS)


def _cell(row: str, place: tuple[str, str] | None, size: int) -> Iterator[Figure]:
    print(f"measuring: growth, {row}, {size}", file=sys.stderr)
    try:
        values = _values(row, place, size)
    except subprocess.TimeoutExpired as error:
        yield Figure(name=named(row, size), value=error.timeout, unit=MISSED)
        return
    except subprocess.CalledProcessError:  # which has written why to our standard error
        yield Figure(name=named(row, size), value=0, unit=FAILED)
        return
    for name, value in values.items():
        yield Figure(name=named(name, size), value=value, unit=_unit(name))


def _values(row: str, place: tuple[str, str] | None, size: int) -> dict[str, float]:
    if place:
        return _run(row, Spot(*place), size)
    with scratch() as folder:
        return _run(row, Spot("embedded", str(folder)), size)


def _run(row: str, spot: Spot, size: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.growth.cell", row, str(spot), str(size)]
    values: dict[str, float] = json.loads(_output(command, ROWS[row].deadline_seconds))
    return values


def _output(command: list[str], deadline_seconds: float) -> str:
    """Return what *command* writes; no process is left, also after an error."""
    # A session of its own, so that its writer is ended with it.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            told, _ = child.communicate(timeout=deadline_seconds)
        finally:
            _end(child.pid)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return told


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
