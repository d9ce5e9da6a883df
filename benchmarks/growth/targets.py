"""Targets of growth, and figures with what is asked of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from benchmarks.growth import candidates
from benchmarks.growth.costs import split
from benchmarks.report.figure import Figure
from benchmarks.store_address import EMBEDDED, STORES


class Bound(NamedTuple):
    """A bound for the value at *size*; over the value at *base*, if there is one."""

    stores: Sequence[str]
    size: int
    at_most: float | None = None
    at_least: float | None = None
    base: int | None = None

    def within(self, largest: int) -> "Bound":
        """Return this bound at *largest*, if that is smaller than its own size."""
        return self._replace(size=min(self.size, largest))


_SERVERS = ("etcd", "zookeeper", "consul")
_TWICE = Bound((EMBEDDED, "etcd", "zookeeper"), 10_000, at_most=2, base=100)
_ONE_READ = Bound(("consul", "cassandra"), 1_000, at_most=1)
BOUNDS = {
    **{one: Bound(STORES, 200, at_most=1.5, base=2) for one in candidates.NEXT.values()},
    **{one: Bound(("zookeeper",), 200, at_most=1.5) for one in candidates.OVER_KAZOO.values()},
    "list: over raw": Bound(STORES, 10_000, at_most=3),
    "join or leave: CPU of a listener": _TWICE,
    "put or delete: CPU of a listener": _TWICE,
    "join or leave: CPU over that of reading all": _ONE_READ,
    "put or delete: CPU over that of reading all": _ONE_READ,
    "value update: CPU of a key-set listener": Bound(STORES, 10_000, at_most=1.5, base=100),
    "membership()": Bound(_SERVERS, 2_500, at_most=500),
    "GroupMembership.close()": Bound(_SERVERS, 2_500, at_most=500),
    "threads that put: over raw": Bound((EMBEDDED,), 64, at_least=0.3),
    # Three keep-alives in a session timeout of 8 s, and a read after each that a quorum answers.
    "at rest, each session: keep-alives": Bound(("etcd",), 20, at_most=0.5),
    "at rest, each session: requests": Bound(("etcd",), 20, at_most=0.9),
}


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
