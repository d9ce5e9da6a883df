"""The report of a storm for people, as Markdown."""

from collections.abc import Iterator, Sequence

from kip30.history.operations import Outcome
from kip30_conformance.storm.summary import Summary

_OUTCOMES = (*(outcome.value for outcome in Outcome), "broken")


def markdown(summary: Summary) -> str:
    """Return the report as Markdown."""
    return "\n".join(_lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    yield f"# Random faults on {summary.run['store']}: {summary.verdict}\n"
    yield from _table("Run", ("what", "value"), list(summary.run.items()))
    yield from _table(
        "Invariants",
        ("id", "what holds", "conclusion", "seen", "why not"),
        [
            (one.invariant, one.about, one.conclusion.value, one.seen, one.missing)
            for one in summary.findings
        ],
    )
    for one in summary.findings:
        if one.violations:
            yield f"## Violations of {one.invariant}\n"
            yield from (f"```\n{text}\n```\n" for text in one.violations)
    yield from _table("Faults", ("fault", "done", "seen to happen"), _faults(summary))
    yield from _table("Calls", ("call", *_OUTCOMES, "longest, in seconds"), list(_calls(summary)))
    yield from _table("In their order", ("second", "fault", "for", "evidence"), _order(summary))


def _faults(summary: Summary) -> list[Sequence[str]]:
    return [(kind, str(done), str(seen)) for kind, (done, seen) in sorted(summary.faults.items())]


def _calls(summary: Summary) -> Iterator[Sequence[str]]:
    for kind, counts in sorted(summary.calls.items()):
        longest = f"{summary.longest[kind]:.3f}" if kind in summary.longest else ""
        yield kind, *(str(counts.get(outcome, 0)) for outcome in _OUTCOMES), longest


def _order(summary: Summary) -> list[Sequence[str]]:
    start = summary.windows[0].begin if summary.windows else 0.0
    return [
        (
            f"{window.begin - start:.1f}",
            f"{fault.kind} ({fault.target})",
            f"{fault.seconds:.1f} s",
            fault.evidence or "none",
        )
        for window in summary.windows
        for fault in window.faults
    ]


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"## {title}\n"
    for line in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(map(_cell, line))} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
