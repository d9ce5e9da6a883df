import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typing_extensions import override

from kip30 import UnsupportedError
from kip30.config import load
from kip30_conformance.conform import PropertiesHarness
from kip30_conformance.harness import Harness
from kip30_conformance.report.rendering import html, markdown
from kip30_conformance.report.results import (
    Check,
    CheckOutcome,
    Level,
    StoreUnderTest,
    Summary,
    case_id,
)

STORE = StoreUnderTest(
    name="toy",
    description={"version": "7"},
    settings={"plugin.backend": "toy", "plugin.toy.password": "***"},
    capabilities={"listing": True, "compare-and-set": False},
    limits={"value_bytes": 10.0},
)


def check(
    outcome: CheckOutcome = CheckOutcome.PASSED,
    name: str = "test_S03_put_existing",
    level: Level = Level.CORE,
    detail: str = "",
    stalled_seconds: float = 0.0,
) -> Check:
    return Check(
        case=case_id(name),
        name=name,
        suite="StorageTests",
        about="A put of a key | that is there raises.",
        level=level,
        outcome=outcome,
        seconds=0.25,
        detail=detail,
        evidence=("killed: 1",) if level is Level.FAULT else (),
        stalled_seconds=stalled_seconds,
    )


def summary(*checks: Check) -> Summary:
    return Summary(
        store=STORE,
        checks=checks,
        level=Level.FAULT,
        seed=7,
        started="2026-01-02T03:04:05+00:00",
        seconds=1.5,
        environment={"kip30": "1"},
    )


@pytest.mark.parametrize(
    ("outcomes", "exit_code"),
    [
        ([CheckOutcome.PASSED], 0),
        ([CheckOutcome.PASSED, CheckOutcome.SKIPPED], 0),
        ([CheckOutcome.PASSED, CheckOutcome.FAILED], 1),
        ([CheckOutcome.NO_EVIDENCE, CheckOutcome.FAILED], 1),
        ([CheckOutcome.PASSED, CheckOutcome.NO_EVIDENCE], 3),
        ([CheckOutcome.SKIPPED], 3),
        ([], 3),
    ],
)
def test_exit_code(outcomes: list[CheckOutcome], exit_code: int) -> None:
    assert summary(*map(check, outcomes)).exit_code == exit_code


@pytest.mark.parametrize(
    ("outcome", "verdict", "exit_code"),
    [
        (CheckOutcome.PASSED, "interrupted", 3),
        (CheckOutcome.NO_EVIDENCE, "interrupted", 3),
        (CheckOutcome.FAILED, "failed", 1),
    ],
)
def test_an_interrupted_run_has_not_passed(
    outcome: CheckOutcome, verdict: str, exit_code: int
) -> None:
    one = replace(summary(check(outcome)), interrupted=True)
    assert (one.verdict, one.exit_code, one.to_json()["interrupted"]) == (verdict, exit_code, True)
    assert f"kip30 on toy: {verdict}" in markdown(one)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("test_S03_put_existing", "S03"), ("test_S03_x[S04]", "S03"), ("test_put", "")],
)
def test_case_id(name: str, expected: str) -> None:
    assert case_id(name) == expected


def test_each_level_includes_those_before() -> None:
    assert [[one.includes(other) for other in Level] for one in Level] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_json_report() -> None:
    found = summary(check(), check(CheckOutcome.FAILED, level=Level.FAULT, detail="why"))
    report = json.loads(json.dumps(found.to_json()))
    assert report["verdict"] == "failed"
    assert report["exit_code"] == 1
    assert report["seed"] == 7
    assert report["counts"] == {"passed": 1, "failed": 1, "no evidence": 0, "skipped": 0}
    assert report["levels"]["fault"]["failed"] == 1
    assert report["store"]["description"] == {"version": "7"}
    assert report["checks"][1] == {
        "case": "S03",
        "name": "test_S03_put_existing",
        "suite": "StorageTests",
        "about": "A put of a key | that is there raises.",
        "level": "fault",
        "outcome": "failed",
        "seconds": 0.25,
        "detail": "why",
        "evidence": ["killed: 1"],
        "stalled_seconds": 0.0,
    }


def test_capabilities_are_reported_with_what_held_them_to_their_declaration() -> None:
    found = summary(check(name="test_G14_listing"))
    assert found.to_json()["capabilities"] == [
        {"name": "listing", "declared": True, "outcome": "passed"},
        {"name": "compare-and-set", "declared": False, "outcome": "not run"},
    ]


def test_the_summary_in_one_line() -> None:
    assert str(summary(check(), check())) == "passed: 2 passed in 2 s"
    assert str(summary()) == "no evidence: nothing ran in 2 s"


def test_markdown_report() -> None:
    text = markdown(summary(check(CheckOutcome.SKIPPED, detail="no <hooks>\nat all"), check()))
    assert text.startswith("# kip30 on toy: passed, of what could be tested\n")
    assert "| S03 | test_S03_put_existing | no &lt;hooks&gt;<br>at all |" in text
    assert "A put of a key \\| that is there raises." in text
    assert "| compare-and-set | no, must be refused | not run |" in text


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.texts: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_report() -> None:
    cells = _Cells()
    cells.feed(html(summary(check(CheckOutcome.FAILED, detail="<script>alert(1)</script>"))))
    assert "script" not in cells.opened
    assert "<script>alert(1)</script>" in cells.texts
    assert "kip30 on toy: failed" in cells.texts


def test_skipped_checks_are_counted_by_reason() -> None:
    skipped = [
        check(CheckOutcome.SKIPPED, detail=why) for why in ("no hooks", "no servers", "no hooks")
    ]
    one = summary(*skipped, check())
    assert (one.exit_code, one.verdict) == (0, "passed, of what could be tested")
    assert one.to_json()["untested"] == {"no hooks": 2, "no servers": 1}
    assert "2 not tested: no hooks; 1 not tested: no servers" in str(one)
    assert summary(check()).verdict == "passed"


def test_stalls_are_noted_at_their_checks_and_in_the_summary() -> None:
    one = summary(check(), check(CheckOutcome.FAILED, detail="why", stalled_seconds=1.26))
    assert str(one).endswith("; the suite's process was stalled for 1.3 s in all, during 1 checks")
    assert one.to_json()["stalled_seconds"] == 1.26
    assert [found["stalled_seconds"] for found in one.to_json()["checks"]] == [0.0, 1.26]
    text = markdown(one)
    assert "| S03 | test_S03_put_existing | the suite's process was stalled for 1.3 s |" in text
    assert "why<br>the suite's process was stalled for 1.3 s" in text
    assert "was stalled" not in str(summary(check()))


def test_reasons_of_skipped_checks_are_counted_together() -> None:
    harness = PropertiesHarness(load({"plugin.backend": "toy"}))
    skipped = [
        check(CheckOutcome.SKIPPED, f"test_N0{number}_unreadable_record", detail=_refusal(harness))
        for number in range(4, 7)
    ]
    assert list(summary(*skipped).untested().values()) == [3]


def _refusal(harness: Harness) -> str:
    with pytest.raises(UnsupportedError) as raised:
        harness.neighbour(harness.unique_root())
    return str(raised.value)
