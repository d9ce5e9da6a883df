"""The figures that have a target, each as a share of it, and those beside another library's."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from benchmarks.report import Results

_MET, _MISSED = "#2f7d4f", "#b5432a"
_OURS, _THEIRS = "#2f7d4f", "#8a9bb5"
_SIDE_BY_SIDE = "tooz"
_LOWEST, _HIGHEST = 1e-3, 60
_GAP = 1.2
_BAR_INCHES = 0.3
_STYLE = {"svg.hashsalt": "kip30", "svg.fonttype": "none", "font.size": 8}


def plot(file: Path, results: Sequence[Results]) -> None:
    """Write a bar for each figure with a target; one that ends left of the line meets it."""
    figures = [one for result in results for one in result.figures]
    aimed = [one for one in figures if _share(one)]
    compared = [one for one in figures if one.subject == _SIDE_BY_SIDE]
    heights = [_BAR_INCHES * len(bars) + 1 for bars in (aimed, compared) if bars]
    pyplot: Any = import_module("matplotlib.pyplot")
    with pyplot.rc_context(_STYLE):
        drawing, axes = pyplot.subplots(
            len(heights),
            figsize=(9, sum(heights)),
            height_ratios=heights,
            squeeze=False,
            layout="constrained",
        )
        _draw_shares(axes[0, 0], aimed)
        if compared:
            _draw_times(axes[-1, 0], compared)
        drawing.savefig(file, bbox_inches="tight", metadata={"Date": None})


def _draw_shares(axes: Any, figures: Sequence[Figure]) -> None:
    for place, one in enumerate(figures):
        share = max(_share(one), _LOWEST)
        axes.barh(place, share, color=_MET if one.met else _MISSED)
        axes.text(max(share, 1) * _GAP, place, f"{one.measured} ({one.target})", va="center")
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xlim=(_LOWEST, _HIGHEST), xlabel="share of what is allowed")
    _name_bars(axes, figures)


def _draw_times(axes: Any, figures: Sequence[Figure]) -> None:
    for place, one in enumerate(figures):
        axes.barh(place, one.value, color=_OURS if one.name.endswith(": kip30") else _THEIRS)
        axes.text(one.value * _GAP, place, one.measured, va="center")
    axes.set(xlabel="milliseconds, median")
    axes.margins(x=0.2)
    _name_bars(axes, figures)


def _name_bars(axes: Any, figures: Sequence[Figure]) -> None:
    axes.set_yticks(range(len(figures)), [f"{one.subject}: {one.name}" for one in figures])
    axes.set(xscale="log")
    axes.invert_yaxis()


def _share(figure: Figure) -> float:
    if figure.at_least is not None:
        return figure.at_least / figure.value
    return figure.value / figure.at_most if figure.at_most else 0
