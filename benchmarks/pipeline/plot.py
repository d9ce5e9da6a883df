"""A plot of what `jobs` measured: ``python -m benchmarks.pipeline.plot RESULTS… --out FILE``.

Each file of results is a series; they differ in the number of keys or of slots.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.report.plot import SAME_BYTES, save

mpl.use("svg")
_JOBS = (
    "plain loop, etcd",
    "snapshot, etcd",
    "plain loop, embedded",
    "snapshot, embedded",
    "restore into embedded",
    "restore, again",
    "diff",
)

_TICKS = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def draw(series: list[dict[str, Any]], out: Path) -> None:
    """Draw the speed of each job in each series, on a logarithmic scale."""
    with plt.rc_context(SAME_BYTES):
        figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
        height = 0.8 / len(series)
        for number, one in enumerate(series):
            places = [place + number * height for place in range(len(_JOBS))]
            speeds = [one["keys"] / one["seconds"][job] for job in _JOBS]
            bars = axes.barh(
                places, speeds, height, label=f"{one['keys']:,} keys, {one['slots']} slots"
            )
            axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], padding=3, fontsize=8)
        axes.set_yticks([place + 0.4 - height / 2 for place in range(len(_JOBS))], _JOBS)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(_TICKS[0], 2 * _TICKS[-1])
        axes.set_xticks(_TICKS, [f"{tick:,}" for tick in _TICKS])
        axes.minorticks_off()
        axes.set_xlabel("rows per second")
        axes.legend(loc="lower right")
        save(figure, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    draw([json.loads(file.read_text()) for file in chosen.results], chosen.out)


if __name__ == "__main__":
    main()
