"""The support table: what each store was seen to keep, out of the reports of `kip30 conform`.

``python -m kip30_conformance.report.support_table REPORT.json … > docs/support.md``
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kip30_conformance.report.results import Outcome

_GRAVITY = [Outcome.FAILED, Outcome.NO_EVIDENCE, Outcome.PASSED, Outcome.SKIPPED]
_WORDS = {
    Outcome.PASSED: "yes",
    Outcome.FAILED: "**no**",
    Outcome.NO_EVIDENCE: "**unproven**",
    Outcome.SKIPPED: "skipped",
}
_ABSENT = "not run"
_PROGRAM = "kip30_conformance.report.support_table"

Report = Mapping[str, Any]


def support(reports: Sequence[Report]) -> str:
    """Return the table of all *reports*, each the content of a ``report.json``, as Markdown."""
    titles = [_title(report) for report in reports]
    parts = [
        "# Support\n",
        f"Written by `python -m {_PROGRAM}` from reports of `kip30 conform`.\n",
        _table(("", *titles), _runs(reports)),
        "## Capabilities and limits\n",
        _table(("", *titles), [*_capabilities(reports), *_limits(reports)]),
        "## Cases\n",
        "A case is kept if all checks with its id passed; a skipped check says why below.\n",
        _table(("case", "what its checks prove", *titles), _cases(reports)),
        *_skips(reports, titles),
    ]
    return "\n".join(parts)


def _title(report: Report) -> str:
    nodes = report["environment"].get("nodes", "")
    return f"{report['store']['name']}{f', {nodes} nodes' if nodes not in {'', '1'} else ''}"


def _runs(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    yield "version", *(report["store"]["description"].get("version", "") for report in reports)
    yield "commit", *(report["environment"].get("commit", "") for report in reports)
    yield "verdict", *(report["verdict"] for report in reports)
    yield "level", *(report["level"] for report in reports)
    yield "checks", *(_counts(report["counts"]) for report in reports)
    yield "seconds", *(f"{report['seconds']:.0f}" for report in reports)
    yield "started", *(report["started"] for report in reports)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)


def _capabilities(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    for name in reports[0]["store"]["capabilities"]:
        yield name, *(_capability(report, name) for report in reports)


def _capability(report: Report, name: str) -> str:
    return "yes" if report["store"]["capabilities"][name] else "no, refused"


def _limits(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    for name in reports[0]["store"]["limits"]:
        yield name, *(f"{report['store']['limits'][name]:g}" for report in reports)


def _cases(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    abouts: dict[str, dict[str, None]] = {}
    for report in reports:
        for check in report["checks"]:
            abouts.setdefault(check["case"], {})[_first_line(check["about"])] = None
    for case, texts in sorted(abouts.items()):
        yield case, "<br>".join(texts), *(_outcome(report, case) for report in reports)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _outcome(report: Report, case: str) -> str:
    outcomes = {Outcome(check["outcome"]) for check in report["checks"] if check["case"] == case}
    return next((_WORDS[one] for one in _GRAVITY if one in outcomes), _ABSENT)


def _skips(reports: Sequence[Report], titles: Sequence[str]) -> Iterator[str]:
    rows = [
        (title, check["case"], check["name"], check["detail"].removeprefix("Skipped: "))
        for report, title in zip(reports, titles, strict=True)
        for check in report["checks"]
        if check["outcome"] == Outcome.SKIPPED.value
    ]
    if rows:
        yield "## Skipped checks\n"
        yield _table(("store", "case", "check", "why"), rows)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(support([json.loads(Path(name).read_text()) for name in sys.argv[1:]]))
