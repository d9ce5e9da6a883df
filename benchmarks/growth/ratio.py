"""Ratio of each cost at its largest size to that at a small one, for the drawing."""

from collections.abc import Sequence

from benchmarks.growth.naming import FAILED, MISSED, split
from benchmarks.report.results import Results
from benchmarks.subjects import GROWTH

SMALLEST = 100
"""Below it a cost is mostly that of a single call."""

_OVER = "over"
"""In the name of a row that is a ratio itself."""


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
