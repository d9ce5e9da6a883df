"""The support page: the guarantees that each store kept, from the reports of `kip30 conform`.

``python -m kip30_conformance.report.support_table REPORT.json … > docs/support.md``
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kip30_conformance.report.markdown import item, table
from kip30_conformance.report.results import CheckOutcome

_GRAVITY = [
    CheckOutcome.FAILED,
    CheckOutcome.NO_EVIDENCE,
    CheckOutcome.PASSED,
    CheckOutcome.SKIPPED,
]
_WORDS = {
    CheckOutcome.PASSED: "yes",
    CheckOutcome.FAILED: "**no**",
    CheckOutcome.NO_EVIDENCE: "**unproven**",
    CheckOutcome.SKIPPED: "skipped",
}
_ABSENT = "not run"
_RUN = ("version", "commit", "verdict", "level", "checks", "seconds", "started")
_PROGRAM = "kip30_conformance.report.support_table"

Report = Mapping[str, Any]


def support(reports: Sequence[Report]) -> str:
    """Return the table of all *reports*, each the content of a ``report.json``, as Markdown."""
    titles = [_title(report) for report in reports]
    parts = [
        "# Support\n",
        f"Written by `python -m {_PROGRAM}` from reports of `kip30 conform`.\n",
        table(("store", *_RUN), map(_run, titles, reports)),
        "## Capabilities and limits\n",
        table(("", *titles), [*_least(reports), *_capabilities(reports), *_limits(reports)]),
        "## Cases\n",
        "A case is kept if all checks with its id passed; skipped checks are listed below.\n",
        table(("case", *titles), _outcomes(reports)),
        "## What the cases prove\n",
        "".join(item(f"{case}: {' '.join(texts)}") for case, texts in _cases(reports).items()),
        *_skips(reports, titles),
    ]
    return "\n".join(parts)


def _title(report: Report) -> str:
    nodes = report["environment"].get("nodes", "")
    return f"{report['store']['name']}{f', {nodes} nodes' if nodes not in {'', '1'} else ''}"


def _run(title: str, report: Report) -> Sequence[str]:
    return (
        title,
        report["store"]["description"].get("version", ""),
        report["environment"].get("commit", ""),
        report["verdict"],
        report["level"],
        _counts(report["counts"]),
        f"{report['seconds']:.0f}",
        report["started"],
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)


def _least(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    """Yield from which version on each store is safe to use, if that is known of any."""
    known = [report["store"]["description"].get("least version", "") for report in reports]
    if any(known):
        yield "least version", *known


def _capabilities(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    for name in reports[0]["store"]["capabilities"]:
        yield name, *(_capability(report, name) for report in reports)


def _capability(report: Report, name: str) -> str:
    return "yes" if report["store"]["capabilities"][name] else "no, refused"


def _limits(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    for name in reports[0]["store"]["limits"]:
        yield name, *(f"{report['store']['limits'][name]:g}" for report in reports)


def _outcomes(reports: Sequence[Report]) -> Iterator[Sequence[str]]:
    for case in _cases(reports):
        yield case, *(_outcome(report, case) for report in reports)


def _cases(reports: Sequence[Report]) -> Mapping[str, Iterable[str]]:
    """Return the cases in order, each with what its checks prove."""
    abouts: dict[str, dict[str, None]] = {}
    for report in reports:
        for check in report["checks"]:
            abouts.setdefault(check["case"], {})[_first_line(check["about"])] = None
    return dict(sorted(abouts.items()))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _outcome(report: Report, case: str) -> str:
    outcomes = {
        CheckOutcome(check["outcome"]) for check in report["checks"] if check["case"] == case
    }
    return next((_WORDS[one] for one in _GRAVITY if one in outcomes), _ABSENT)


def _skips(reports: Sequence[Report], titles: Sequence[str]) -> Iterator[str]:
    skips = {title: _reasons(report) for report, title in zip(reports, titles, strict=True)}
    if any(skips.values()):
        yield "## Skipped checks\n"
    for title, reasons in skips.items():
        if reasons:
            yield f"### {title}\n"
            yield "".join(item(f"{why}: {', '.join(names)}") for why, names in reasons.items())


def _reasons(report: Report) -> Mapping[str, Sequence[str]]:
    """Return the names of skipped checks by the reason why they were skipped."""
    reasons: dict[str, list[str]] = {}
    for check in report["checks"]:
        if check["outcome"] == CheckOutcome.SKIPPED.value:
            why = check["detail"].removeprefix("Skipped: ")
            reasons.setdefault(why, []).append(f"`{check['name']}`")
    return reasons


if __name__ == "__main__":
    sys.stdout.write(support([json.loads(Path(name).read_text()) for name in sys.argv[1:]]))
