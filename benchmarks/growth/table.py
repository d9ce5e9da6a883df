"""Growth as Markdown: a table for each cost, a row for each store, a column for each size."""

from collections.abc import Mapping, Sequence

from benchmarks.growth.costs import FAILED, MISSED, exponent, split
from benchmarks.report.figure import Figure
from benchmarks.report.results import Results
from benchmarks.store_address import STORES
from kip30_conformance.report.markdown import table

_NONE = "No figures yet."

Costs = dict[int | None, Figure]
"""The figures of one cost on one store by size; None is of all sizes."""


def tables(results: Sequence[Results]) -> str:
    return "\n".join(_table(cost, stores) for cost, stores in _costs(results).items()) or _NONE


def _costs(results: Sequence[Results]) -> Mapping[str, Mapping[str, Costs]]:
    """Return figures by cost and store."""
    costs: dict[str, dict[str, Costs]] = {}
    for result in sorted(results, key=lambda one: STORES.index(one.store)):
        for one in result.figures:
            cost, size = split(one.name)
            costs.setdefault(cost, {}).setdefault(result.store, {})[size] = one
    return costs


def _table(cost: str, stores: Mapping[str, Costs]) -> str:
    sizes = sorted({size for costs in stores.values() for size in costs if size is not None})
    head = (cost, *(f"{size:,}" for size in sizes), "all sizes", "exponent", "target")
    lines = [head, *(_line(store, costs, sizes) for store, costs in stores.items())]
    kept = [column for column in zip(*lines, strict=True) if any(column[1:])]
    titles, *rows = zip(*kept, strict=True)
    return table(titles, rows)


def _line(store: str, costs: Costs, sizes: Sequence[int]) -> Sequence[str]:
    slope = exponent(
        {
            size: one.value
            for size, one in costs.items()
            if size and one.unit not in {MISSED, FAILED}
        }
    )
    return (
        store,
        *(_cell(costs.get(size)) for size in sizes),
        _cell(costs.get(None)),
        "" if slope is None else f"{slope:.2f}",
        next((one.target for one in costs.values() if one.target), ""),
    )


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.unit == FAILED:
        return FAILED
    if figure.unit == MISSED:
        return f"over {figure.value:g} s"
    return f"**{figure.measured}**" if figure.met is False else figure.measured
