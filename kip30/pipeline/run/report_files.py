"""The files of a report: ``report.json`` for programs, ``report.html`` and plots for people.

Keys of findings are in them, and values never are.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kip30.pipeline.run.directory import write_whole
from kip30.pipeline.run.report import Report, save_report

HTML_NAME = "report.html"
_TEMPLATE = "report.html.jinja"
_MOST_BARS = 60
_MOST_NAMESPACES = 20


class ChartBar(NamedTuple):
    """A bar of a chart."""

    name: str
    height: float


class Chart(NamedTuple):
    """Numbers to draw.

    Attributes:
        name: The stem of its file.
        title: What is drawn, with its unit.
        bars: One for each wave, or for each namespace.
    """

    name: str
    title: str
    bars: Sequence[ChartBar]

    @property
    def highest(self) -> float:
        """The height of the highest bar; never 0."""
        return max((bar.height for bar in self.bars), default=0) or 1


def write_report(folder: Path, report: Report) -> Path:
    """Write all files of *report* into *folder*, and return that for people.

    Files of an earlier attempt of the run are replaced.
    """
    shown = charts(report)
    save_report(folder, report)
    write_whole(folder / HTML_NAME, html(report, shown))
    for chart in shown:
        _plot(chart, folder / f"{chart.name}.png")
    return folder / HTML_NAME


def charts(report: Report) -> list[Chart]:
    """Return what there is to draw of *report*; nothing where there are no numbers."""
    drawn = [
        Chart("rows", "Rows by wave", _by_wave(report.waves, _rows)),
        Chart("rate", "Rows per second by wave", _by_wave(report.waves, _rate)),
        Chart("sizes", "Mean size of a value by wave, in bytes", _by_wave(report.waves, _size)),
        Chart("findings", "Findings by namespace", _by_namespace(report.findings)),
    ]
    return [chart for chart in drawn if any(bar.height for bar in chart.bars)]


def html(report: Report, shown: Sequence[Chart]) -> str:
    """Return the page: no script, nothing from elsewhere, all that is not ours escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  only for this

    environment = Environment(
        loader=PackageLoader("kip30.pipeline.run"), autoescape=True, undefined=StrictUndefined
    )
    template = environment.get_template(_TEMPLATE)
    return template.render(report=report, charts=shown, printable=printable)


def printable(text: object) -> str:
    """Return *text* with what cannot be printed escaped, such as marks that turn its direction."""
    return "".join(map(_escaped, str(text)))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def _by_wave(waves: Sequence[Any], number: Any) -> list[ChartBar]:
    """Return a bar for each wave, or for as many neighbours together as fit."""
    step = -(-len(waves) // _MOST_BARS) or 1
    groups = [waves[start : start + step] for start in range(0, len(waves), step)]
    return [ChartBar(str(group[0].get("wave", "")), number(group)) for group in groups]


def _sum(waves: Sequence[Any], name: str) -> float:
    return float(sum(wave.get(name, 0) for wave in waves))


def _rows(waves: Sequence[Any]) -> float:
    return _sum(waves, "rows")


def _rate(waves: Sequence[Any]) -> float:
    return _rows(waves) / max(_sum(waves, "seconds"), 0.001)


def _size(waves: Sequence[Any]) -> float:
    return _sum(waves, "value_bytes") / max(_rows(waves), 1)


def _by_namespace(findings: Sequence[Any]) -> list[ChartBar]:
    counted = Counter(one.get("key", "").rpartition("/")[0] for one in findings)
    return [ChartBar(name or "/", number) for name, number in counted.most_common(_MOST_NAMESPACES)]


def _plot(chart: Chart, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(8, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    positions = range(len(chart.bars))
    axes.bar(positions, [bar.height for bar in chart.bars], color="#3b6ea5")
    axes.set_title(chart.title)
    step = -(-len(chart.bars) // 10) or 1
    axes.set_xticks(positions[::step], [_label(bar) for bar in chart.bars[::step]])
    figure.savefig(file, format="png", metadata={"Software": None})
    file.chmod(0o600)


def _label(bar: ChartBar) -> str:
    """Return the name of *bar* in ASCII, short, and without what would be a formula."""
    name = bar.name.encode("ascii", "backslashreplace").decode()
    short = name if len(name) <= 16 else f"{name[:15]}~"  # noqa: PLR2004  what fits
    return printable(short).replace("$", r"\$")
