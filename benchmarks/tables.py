"""Results as Markdown: what several stores have side by side, and what one of them has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.figure import BESIDE, SCAN, Figure
from benchmarks.growth.naming import GROWTH
from benchmarks.growth.table import table
from benchmarks.report import Results
from benchmarks.subjects import EMBEDDED, STORES

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
        "growth": table([one for one in results if one.subject == GROWTH]),
        "load": _load(results),
    }


def fill(page: str, shown: Mapping[str, str]) -> str:
    """Return *page* with each part between the two marks that bear its name."""
    for name, part in shown.items():
        begin, end = _MARK.format(name), _MARK.format(f"end of {name}")
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{part}\n{end}{after}"
    return page


def _overview(results: Sequence[Results], least: int = 2) -> str:
    """Return a row for each figure that so many stores have, in the order of those on servers."""
    known = {one.store for one in results}
    stores = [store for store in STORES if store in known]
    lines = [_line(["", *stores]), _line(["---"] * (len(stores) + 1))]
    for name, row in _rows(sorted(results, key=lambda one: one.store == EMBEDDED)).items():
        if len(row) >= least:
            lines.append(_line([name, *(_cell(row.get(store)) for store in stores)]))
    return "\n".join(lines)


def _details(results: Sequence[Results]) -> str:
    """Return the figures that one store alone has."""
    lines = [_line(["store", "figure", "measured", "target"]), _line(["---"] * 4)]
    for name, row in _rows(results).items():
        if len(row) == 1:
            ((store, one),) = row.items()
            lines.append(_line([store, f"{one.subject}: {name}", _measured(one), one.target]))
    return "\n".join(lines)


def _load(results: Sequence[Results]) -> str:
    """Return how busy the machine was before and after each subject."""
    stores: dict[str, list[str]] = {}
    for one in results:
        said = f"{one.subject} {one.load[0]:.1f}-{one.load[1]:.1f}"
        stores.setdefault(one.store, []).append(said)
    return "; ".join(f"{store}: {', '.join(said)}" for store, said in stores.items())


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
    return f"{_measured(figure)} ({figure.target})" if figure.target else _measured(figure)


def _measured(figure: Figure) -> str:
    return f"**{figure.measured}**" if figure.met is False else figure.measured


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
