"""The report for people, as Markdown and as one self-contained HTML page."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from kip30_conformance.report.results import CheckOutcome, Level, Summary

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem }
table { border-collapse: collapse; margin: 0 0 2rem; width: 100% }
th, td { border-bottom: 1px solid #8884; padding: .3rem .6rem; text-align: left }
tr { vertical-align: top }
td { white-space: pre-wrap } td:first-child { white-space: nowrap }
"""


class ReportTable(NamedTuple):
    """A titled table of text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def markdown(summary: Summary) -> str:
    """Return the report as Markdown."""
    parts = [f"# {_headline(summary)}\n"]
    for table in _tables(summary):
        lines = [table.head, ["---"] * len(table.head), *table.rows]
        rows = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
        parts.append(f"## {table.title}\n\n{rows}\n")
    return "\n".join(parts)


def html(summary: Summary) -> str:
    """Return the report as an HTML page."""
    title = escape(_headline(summary))
    tables = "\n".join(map(_html_table, _tables(summary)))
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style>\n<h1>{title}</h1>\n{tables}\n</html>\n"
    )


def _headline(summary: Summary) -> str:
    return f"kip30 on {summary.store.name}: {summary.verdict}"


def _tables(summary: Summary) -> Iterator[ReportTable]:
    yield ReportTable("Run", ("what", "value"), _run(summary))
    yield ReportTable(
        "Levels", ("level", *(outcome.value for outcome in CheckOutcome)), _levels(summary)
    )
    yield ReportTable(
        "Capabilities",
        ("capability", "declared", "held to it"),
        [
            (name, "yes" if declared else "no, must be refused", summary.proof_of(name))
            for name, declared in summary.store.capabilities.items()
        ],
    )
    limits = [(name, f"{value:g}") for name, value in summary.store.limits.items()]
    yield ReportTable("Limits", ("limit", "value"), limits)
    yield ReportTable("Settings", ("setting", "value"), list(summary.store.settings.items()))
    yield from _trouble(summary)
    yield ReportTable(
        "Cases", ("case", "what it proves", "outcome", "seconds", "evidence"), _cases(summary)
    )


def _trouble(summary: Summary) -> Iterator[ReportTable]:
    """Yield the notes before the cases: untested properties, stalls, failures."""
    if untested := summary.untested():
        skips = [(str(number), reason) for reason, number in untested.items()]
        yield ReportTable("Not tested", ("checks", "why"), skips)
    if stalled := summary.stalled():
        notes = [(check.case, check.name, check.note) for check in stalled]
        yield ReportTable("Stalls", ("case", "check", "note"), notes)
    for outcome in (CheckOutcome.FAILED, CheckOutcome.NO_EVIDENCE, CheckOutcome.SKIPPED):
        rows = [
            (check.case, check.name, "\n".join(filter(None, (check.detail, check.note))))
            for check in summary.checks
            if check.outcome is outcome
        ]
        if rows:
            yield ReportTable(outcome.value.capitalize(), ("case", "check", "why"), rows)


def _run(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("store", summary.store.name),
        *((f"store {name}", text) for name, text in summary.store.description.items()),
        *summary.environment.items(),
        ("started", summary.started),
        ("seconds", f"{summary.seconds:.1f}"),
        ("seconds stalled", f"{sum(check.stalled_seconds for check in summary.checks):.1f}"),
        ("seed", str(summary.seed)),
    ]


def _levels(summary: Summary) -> list[list[str]]:
    return [
        [level.value, *(str(summary.count(level).get(outcome, 0)) for outcome in CheckOutcome)]
        for level in Level
        if summary.count(level)
    ]


def _cases(summary: Summary) -> list[tuple[str, ...]]:
    return [
        (
            check.case,
            f"{check.about}\n{check.name}",
            check.outcome.value,
            f"{check.seconds:.2f}",
            "; ".join(check.evidence),
        )
        for check in sorted(summary.checks, key=lambda check: (check.case, check.name))
    ]


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("\n", "<br>")


def _html_table(table: ReportTable) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in table.head)
    rows = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in table.rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>{escape(table.title)}</h2>\n<table><tr>{head}</tr>\n{body}\n</table>"
