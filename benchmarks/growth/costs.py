"""Figures of growth as costs by row and size, and how a cost grows."""

from collections.abc import Mapping, Sequence
from math import log

from benchmarks.report.results import Results
from benchmarks.subjects import GROWTH

MISSED = "s, not done in"
"""The unit of a figure that has no value but the deadline."""

FAILED = "failed"
"""The unit of a figure whose process failed."""

SMALLEST = 100
"""Below it a cost is mostly that of a single call."""

_SIZE = ", N = "
_OVER = "over"
"""In the name of a row that is a ratio itself."""


def named(row: str, size: int) -> str:
    return f"{row}{_SIZE}{size:,}"


def split(name: str) -> tuple[str, int | None]:
    """Return the row, and the size unless the figure is about all sizes."""
    row, found, size = name.partition(_SIZE)
    return row, int(size.replace(",", "")) if found else None


def exponent(costs: Mapping[int, float]) -> float | None:
    """Return the slope of log(cost) over log(size) between the two largest sizes.

    None if there are not two sizes, or a cost was too small to be measured.
    """
    if len(costs) < 2:
        return None
    first, last = sorted(costs)[-2:]
    if costs[first] <= 0 or costs[last] <= 0:
        return None
    return log(costs[last] / costs[first]) / log(last / first)


def ratios(results: Sequence[Results]) -> dict[str, dict[str, float]]:
    """Return the ratio of the cost at the largest size to that at `SMALLEST`, by row and store.

    A cost without figures at both is left out.
    """
    rows: dict[str, dict[str, float]] = {}
    for result in results:
        for row, costs in _costs(result).items() if result.subject == GROWTH else ():
            largest = max(costs)
            if largest > SMALLEST and costs.get(SMALLEST):
                rows.setdefault(row, {})[result.store] = costs[largest] / costs[SMALLEST]
    return rows


def _costs(result: Results) -> dict[str, dict[int, float]]:
    costs: dict[str, dict[int, float]] = {}
    for one in result.figures:
        row, size = split(one.name)
        is_cost = one.unit not in {MISSED, FAILED} and _OVER not in row.split()
        if is_cost and size is not None:
            costs.setdefault(row, {})[size] = one.value
    return costs
