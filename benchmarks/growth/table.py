"""Growth as Markdown: a row for each store and cost, a column for each size."""

from collections.abc import Sequence

from benchmarks.figure import Figure
from benchmarks.growth.exponent import exponent
from benchmarks.growth.naming import FAILED, MISSED, split
from benchmarks.report import Results

Costs = dict[int | None, Figure]


def table(results: Sequence[Results]) -> str:
    rows = _rows(results)
    sizes = sorted({size for costs in rows.values() for size in costs if size is not None})
    head = ["cost", "store", *(f"{size:,}" for size in sizes), "exponent", "target"]
    lines = [head, ["---"] * len(head)]
    lines += [_line(*row, costs, sizes) for row, costs in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _rows(results: Sequence[Results]) -> dict[tuple[str, str], Costs]:
    """Return figures by row and store, the stores of one row together."""
    rows: dict[str, dict[str, Costs]] = {}
    for result in results:
        for one in result.figures:
            row, size = split(one.name)
            rows.setdefault(row, {}).setdefault(result.store, {})[size] = one
    return {(row, store): costs for row, all_ in rows.items() for store, costs in all_.items()}


def _line(row: str, store: str, costs: Costs, sizes: Sequence[int]) -> list[str]:
    slope = exponent(
        {
            size: one.value
            for size, one in costs.items()
            if size and one.unit not in {MISSED, FAILED}
        }
    )
    whole = costs.get(None)
    return [
        row if whole is None else f"{row}: {_cell(whole)}",
        store,
        *(_cell(costs.get(size)) for size in sizes),
        "" if slope is None else f"{slope:.2f}",
        next((one.target for one in costs.values() if one.target), ""),
    ]


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.unit == FAILED:
        return FAILED
    if figure.unit == MISSED:
        return f"over {figure.value:g} s"
    return f"**{figure.measured}**" if figure.met is False else figure.measured
