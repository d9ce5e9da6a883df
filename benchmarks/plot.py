"""The figures that have a target, each as a share of it."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from benchmarks.report import Results

_MET, _MISSED = "#2f7d4f", "#b5432a"
_LOWEST, _HIGHEST = 1e-3, 60
_GAP = 1.2
_STYLE = {"svg.hashsalt": "kip30", "svg.fonttype": "none", "font.size": 8}


def plot(file: Path, results: Sequence[Results]) -> None:
    """Write a bar for each figure with a target; one that ends left of the line meets it."""
    shares = [(one, _share(one)) for result in results for one in result.figures]
    bars = [(one, max(share, _LOWEST)) for one, share in shares if share is not None]
    pyplot: Any = import_module("matplotlib.pyplot")
    with pyplot.rc_context(_STYLE):
        drawing, axes = pyplot.subplots(figsize=(9, 0.3 * len(bars) + 1))
        for place, (one, share) in enumerate(bars):
            axes.barh(place, share, color=_MET if one.met else _MISSED)
            axes.text(max(share, 1) * _GAP, place, f"{one.measured} ({one.target})", va="center")
        axes.set_yticks(range(len(bars)), [f"{one.subject}: {one.name}" for one, _ in bars])
        axes.axvline(1, color="black", linewidth=1)
        axes.set(xscale="log", xlim=(_LOWEST, _HIGHEST), xlabel="share of what is allowed")
        axes.invert_yaxis()
        drawing.savefig(file, bbox_inches="tight", metadata={"Date": None})


def _share(figure: Figure) -> float | None:
    if figure.at_least is not None:
        return figure.at_least / figure.value
    return figure.value / figure.at_most if figure.at_most else None
