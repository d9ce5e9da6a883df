"""`ScanDriver.scan` on one thread, against the bare client sending the same requests."""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from benchmarks.clients.opening import raw_scan
from benchmarks.dataset import fill
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress
from benchmarks.timing import Spent, both_spent
from kip30.driver.scanning import Position, ScanDriver, Span
from kip30.runtime.resolution import scanner

ROUNDS = 5
SPAN_ROWS = 20_000
_AT_LEAST = 0.8
_ROWS = 200_000
_FEWER = {"consul": 50_000, "cassandra": 50_000}
_NAMESPACE = "scan"


class Plan(NamedTuple):
    store: ScanDriver
    at: Position
    spans: Sequence[Span]

    def read(self) -> int:
        """Read all spans and return how many rows they have."""
        pages = (page for span in self.spans for page in self.store.scan(span, self.at))
        return sum(len(page.keys) for page in pages)


def measure(address: StoreAddress, rows: int | None = None) -> list[Figure]:
    """Measure the store at *address*, with *rows* rows."""
    number = rows or _FEWER.get(address.store, _ROWS)
    with address.open(_NAMESPACE) as locator:
        fill(locator, number)
    with scanner(address.settings(_NAMESPACE)) as store, closing(raw_scan(address)) as raw:
        at = store.position()
        plan = Plan(store, at, list(store.plan(at, SPAN_ROWS)))
        with raw.recording():
            _check(plan.read(), number)
        _check(raw.read(), number)
        return _figures([both_spent(plan.read, raw.read, turn) for turn in range(ROUNDS)], number)


def _check(found: int, rows: int) -> None:
    assert found == rows, f"{found} rows were read of {rows}"


def _figures(rounds: Sequence[tuple[Spent, Spent]], rows: int) -> list[Figure]:
    walls = [(library.wall, raw.wall) for library, raw in rounds]
    times = [(library.cpu, raw.cpu) for library, raw in rounds]
    return [
        _ratio("scan", walls, at_least=_AT_LEAST),
        _ratio("scan, CPU time", times),
        _row("scan, one row", [library for library, _ in walls], rows),
        _row("scan, one row, CPU time", [library for library, _ in times], rows),
        _row("scan, one row, raw", [raw for _, raw in walls], rows),
        _row("scan, one row, raw, CPU time", [raw for _, raw in times], rows),
    ]


def _ratio(
    name: str, pairs: Sequence[tuple[float, float]], at_least: float | None = None
) -> Figure:
    ratios = [raw / library for library, raw in pairs]
    return Figure.median(name, ratios, "x raw", at_least=at_least)


def _row(name: str, seconds: Sequence[float], rows: int) -> Figure:
    return Figure.median(name, [one / rows * 1e6 for one in seconds], "us")
