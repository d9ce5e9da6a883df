"""Results as Markdown: figures of several stores side by side, and those of one alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.growth.table import tables
from benchmarks.report.figure import Figure
from benchmarks.report.results import Results
from benchmarks.store_address import EMBEDDED, STORES
from benchmarks.subjects import BESIDE, GROWTH, SCAN
from kip30_conformance.report.markdown import item, table

_MARK = "<!-- {} -->"


def parts(results: Sequence[Results]) -> dict[str, str]:
    """Return all there is to show, by name."""
    own = [one for one in results if one.subject not in {BESIDE, SCAN, GROWTH}]
    beside = [one for one in results if one.subject == BESIDE]
    scans = [one for one in results if one.subject == SCAN]
    return {
        "overview": _overview(own),
        "one store alone": _details(own),
        "beside Tooz": _overview(beside, least=1),
        "bulk reading": _overview(scans, least=1),
        "growth": tables([one for one in results if one.subject == GROWTH]),
        "load": _load(results),
    }


def fill(page: str, shown: Mapping[str, str]) -> str:
    """Return *page* with each part between the two marks that bear its name."""
    for name, part in shown.items():
        begin, end = _MARK.format(name), _MARK.format(f"end of {name}")
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{part.strip()}\n{end}{after}"
    return page


def _overview(results: Sequence[Results], least: int = 2) -> str:
    """Return a row for each figure of at least *least* stores, in the order of those on servers.

    Each unit has a table of its own, so that cells are numbers and lines short.
    """
    by_unit: dict[str, dict[str, dict[str, Figure]]] = {}
    for name, row in _rows(sorted(results, key=lambda one: one.store == EMBEDDED)).items():
        if len(row) >= least:
            for store, one in row.items():
                by_unit.setdefault(one.unit, {}).setdefault(name, {})[store] = one
    return "\n".join(_of_unit(unit, rows) for unit, rows in by_unit.items())


def _of_unit(unit: str, rows: Mapping[str, Mapping[str, Figure]]) -> str:
    stores = [store for store in STORES if any(store in row for row in rows.values())]
    cells = ((name, *(_cell(row.get(store)) for store in stores)) for name, row in rows.items())
    return table((unit, *stores), cells)


def _details(results: Sequence[Results]) -> str:
    """Return the figures that one store alone has."""
    subjects = {
        (result.store, figure.name): result.subject
        for result in results
        for figure in result.figures
    }
    cells = (
        (store, f"{subjects[store, name]}: {name}", _emphasised(one, one.measured), one.target)
        for name, row in _rows(results).items()
        if len(row) == 1
        for store, one in row.items()
    )
    return table(("store", "figure", "measured", "target"), cells)


def _load(results: Sequence[Results]) -> str:
    """Return how busy the machine was before and after each subject."""
    stores: dict[str, list[str]] = {}
    for one in results:
        load = f"{one.subject} {one.load[0]:.1f}-{one.load[1]:.1f}"
        stores.setdefault(one.store, []).append(load)
    return "".join(item(f"{store}: {', '.join(loads)}") for store, loads in stores.items())


def _rows(results: Iterable[Results]) -> dict[str, dict[str, Figure]]:
    rows: dict[str, dict[str, Figure]] = {}
    for store, one in _figures(results):
        rows.setdefault(one.name, {})[store] = one
    return rows


def _figures(results: Iterable[Results]) -> Iterator[tuple[str, Figure]]:
    return ((result.store, figure) for result in results for figure in result.figures)


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    number = _emphasised(figure, figure.number)
    return f"{number} ({figure.target})" if figure.target else number


def _emphasised(figure: Figure, text: str) -> str:
    """Return *text*, in bold if the figure misses its target."""
    return f"**{text}**" if figure.met is False else text
