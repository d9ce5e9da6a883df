"""All stores in one drawing: shares of what is allowed, times of single calls, and another library.

A row is a figure, and each store that has it is a mark in that row.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figure import BESIDE, Figure
from benchmarks.report import Results

_MARKS = {
    "embedded": ("#6b6b6b", "s"),
    "zookeeper": ("#2f7d4f", "o"),
    "etcd": ("#2b6cb0", "D"),
    "consul": ("#b5432a", "^"),
    "cassandra": ("#8a5fbf", "v"),
}
_LOWEST = 1e-3
_ROW_INCHES = 0.24
_FRAME_INCHES = 1.0
_STYLE = {"svg.hashsalt": "kip30", "svg.fonttype": "none", "font.size": 8}
_ONE_CALL = ", one call"


def _milliseconds_of_a_call(figure: Figure) -> float:
    return figure.value / 1e3 if figure.name.endswith(_ONE_CALL) else 0


def _milliseconds_beside_tooz(figure: Figure) -> float:
    return figure.value if figure.subject == BESIDE else 0


class _Panel(NamedTuple):
    """Those figures that have a *value* here, which is 0 for the others."""

    label: str
    value: Callable[[Figure], float]
    allowed: float | None = None


_PANELS = (
    _Panel(
        "share of what is allowed: what is left of the line meets its target",
        attrgetter("share"),
        1,
    ),
    _Panel("time of one call, milliseconds", _milliseconds_of_a_call),
    _Panel("kip30 and Tooz, milliseconds", _milliseconds_beside_tooz),
)


def plot(file: Path, results: Sequence[Results]) -> None:
    """Draw *results* to *file*."""
    pyplot: Any = import_module("matplotlib.pyplot")
    panels = [(panel, rows) for panel in _PANELS if (rows := _rows(panel, results))]
    heights = [_ROW_INCHES * len(rows) + _FRAME_INCHES for _, rows in panels]
    with pyplot.rc_context(_STYLE):
        drawing, axes = pyplot.subplots(
            len(panels),
            figsize=(9, sum(heights)),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        for (panel, rows), one in zip(panels, axes[:, 0], strict=True):
            _draw(one, panel, rows)
        _explain(drawing, {result.store for result in results})
        drawing.savefig(file, bbox_inches="tight", metadata={"Date": None})


def _rows(panel: _Panel, results: Iterable[Results]) -> dict[str, dict[str, float]]:
    """Return what is drawn: a value for each store, by the name of the row; shared ones first."""
    rows: dict[str, dict[str, float]] = {}
    for result in results:
        for figure in result.figures:
            if value := panel.value(figure):
                name = figure.name.removesuffix(_ONE_CALL)
                rows.setdefault(name, {})[result.store] = max(value, _LOWEST)
    return dict(sorted(rows.items(), key=lambda row: -len(row[1])))


def _draw(axes: Any, panel: _Panel, rows: dict[str, dict[str, float]]) -> None:
    for place, row in enumerate(rows.values()):
        for store, value in row.items():
            color, marker = _MARKS[store]
            axes.plot(value, place, marker=marker, color=color, linestyle="none", alpha=0.8)
    if panel.allowed is not None:
        axes.axvline(panel.allowed, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set(xscale="log", xlabel=panel.label)
    axes.grid(visible=True, color="#e0e0e0", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.invert_yaxis()


def _explain(drawing: Any, stores: Collection[str]) -> None:
    lines: Any = import_module("matplotlib.lines")
    handles = [
        lines.Line2D([], [], color=color, marker=marker, linestyle="none", label=store)
        for store, (color, marker) in _MARKS.items()
        if store in stores
    ]
    drawing.legend(handles=handles, loc="outside upper center", ncols=len(handles))
