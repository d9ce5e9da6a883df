import json

from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.rendering import markdown
from kip30_conformance.storm.running import judged
from kip30_conformance.storm.summary import Summary

from .records import record

RUN = {"store": "toy 1, 3 nodes", "seed": "7"}


def summary(*findings: Finding) -> Summary:
    return Summary(run=RUN, findings=findings, faults={}, calls={}, longest={}, windows=[])


def finding(*violations: str, missing: str = "") -> Finding:
    return Finding("I1", "one holder", violations, "2 terms", missing)


def test_exit_codes() -> None:
    assert summary(finding()).exit_code == 0
    assert summary(finding("x"), finding(missing="y")).exit_code == 1
    assert summary(finding(), finding(missing="y")).exit_code == 3
    assert summary().exit_code == 3


def test_the_summary_names_the_violated_invariant() -> None:
    assert str(summary(finding("x"))) == "failed: I1 violation, 0 faults"


def test_reports_for_machines_and_people() -> None:
    whole = judged(record(), RUN)
    told = json.loads(json.dumps(whole.to_json()))
    assert [one["invariant"] for one in told["findings"]] == [
        *(f"I{number}" for number in range(1, 18)),
        "F",
    ]
    text = markdown(whole)
    assert "# Random faults on toy 1, 3 nodes: failed" in text
    assert "| 0.0 | link cut (c0) | 2.0 s | 9 bytes lost |" in text


def test_a_violation_is_shown() -> None:
    assert "## Violations of I1\n\n```\nthe reason\n```" in markdown(summary(finding("the reason")))
