"""All stores in one drawing: shares of what is allowed, single calls, another library, and growth.

A row is a figure, and each store that has it is a mark in that row.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.growth.costs import SMALLEST, ratios
from benchmarks.report.figure import Figure
from benchmarks.report.results import Results
from benchmarks.subjects import BESIDE

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
SAME_BYTES: dict[Any, Any] = {"svg.hashsalt": "kip30"}
"""Settings with which equal figures make equal files."""
_STYLE = {**SAME_BYTES, "svg.fonttype": "none", "font.size": 8}
_ONE_CALL = ", one call"

_Rows = Mapping[str, Mapping[str, float]]


def _rows_of(
    value: Callable[[Figure], float], results: Sequence[Results], subject: str | None = None
) -> _Rows:
    """Return the *value* of each figure by row and store, without those that are 0.

    With *subject*, only its figures.
    """
    rows: dict[str, dict[str, float]] = {}
    for result in results:
        for figure in result.figures if subject in {None, result.subject} else ():
            if found := value(figure):
                name = figure.name.removesuffix(_ONE_CALL)
                rows.setdefault(name, {})[result.store] = max(found, _LOWEST)
    return rows


def _milliseconds_of_a_call(figure: Figure) -> float:
    return figure.value / 1e3 if figure.name.endswith(_ONE_CALL) else 0


class _Panel(NamedTuple):
    """*rows* returns what is drawn: a value for each store, by the name of the row."""

    label: str
    rows: Callable[[Sequence[Results]], _Rows]
    allowed: float | None = None


_PANELS = (
    _Panel(
        "share of what is allowed: what is left of the line meets its target",
        partial(_rows_of, attrgetter("share")),
        1,
    ),
    _Panel("time of one call, milliseconds", partial(_rows_of, _milliseconds_of_a_call)),
    _Panel("kip30 and Tooz, milliseconds", partial(_rows_of, attrgetter("value"), subject=BESIDE)),
    _Panel(f"cost at the largest N over that at {SMALLEST:,}", ratios, 1),
)


def plot(file: Path, results: Sequence[Results]) -> None:
    """Draw *results* to *file*."""
    pyplot: Any = import_module("matplotlib.pyplot")
    panels = [(panel, rows) for panel in _PANELS if (rows := _sorted(panel.rows(results)))]
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
        save(drawing, file, bbox_inches="tight")


def save(drawing: Any, file: Path, **options: Any) -> None:
    """Save *drawing* without the date, for the same reason as `SAME_BYTES`."""
    drawing.savefig(file, metadata={"Date": None}, **options)


def _sorted(rows: _Rows) -> _Rows:
    """Return *rows*, those that more stores share first."""
    return dict(sorted(rows.items(), key=lambda row: -len(row[1])))


def _draw(axes: Any, panel: _Panel, rows: _Rows) -> None:
    for place, row in enumerate(rows.values()):
        for store, value in row.items():
            color, marker = _MARKS[store]
            axes.plot(
                max(value, _LOWEST), place, marker=marker, color=color, linestyle="none", alpha=0.8
            )
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
