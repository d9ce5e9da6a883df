"""Figures with what is asked of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.growth.naming import split
from benchmarks.growth.rows import Bound
from benchmarks.report.figure import Figure


def judged(store: str, figures: Sequence[Figure], bounds: Mapping[str, Bound]) -> list[Figure]:
    """Return *figures* with the targets of *store*, and the ratios that some targets are of."""
    reached = _reached(figures)
    # A store whose sizes end before that of the target is judged by its largest.
    bounds = {row: one.within(reached.get(row, one.size)) for row, one in bounds.items()}
    limited = [_limited(store, one, bounds) for one in figures]
    values = {split(one.name): one.value for one in figures}
    ratios = [
        _ratio(row, values[row, bound.size] / base, bound)
        for row, bound in bounds.items()
        if store in bound.stores
        and (row, bound.size) in values
        and (base := values.get((row, bound.base), 0))
    ]
    return limited + ratios


def _reached(figures: Sequence[Figure]) -> Mapping[str, int]:
    """Return the largest size that each row was measured at."""
    reached: dict[str, int] = {}
    for one in figures:
        row, size = split(one.name)
        if size is not None:
            reached[row] = max(size, reached.get(row, 0))
    return reached


def _limited(store: str, figure: Figure, bounds: Mapping[str, Bound]) -> Figure:
    row, size = split(figure.name)
    bound = bounds.get(row)
    if bound is None or bound.base or store not in bound.stores or size != bound.size:
        return figure
    return replace(figure, at_most=bound.at_most, at_least=bound.at_least)


def _ratio(row: str, value: float, bound: Bound) -> Figure:
    name = f"{row}: {bound.size:,} over {bound.base:,}"
    return Figure(name=name, value=value, unit="x", at_most=bound.at_most)
