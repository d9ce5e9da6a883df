import json
import re
from pathlib import Path

import pytest

from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.run.report_files import charts, html, write_report

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a/</code></td>{{ 7*7 }}",
    "a/{% raw %}",
    "a/\u202egnp.exe",
    "a/\x1b[31m\0\n",
    "\udcff/x",
    "$\\frac{1}{0}$/k",
)


def _report(**more: object) -> Report:
    given: dict[str, object] = {
        "counts": {"rows": 30, "rejected": 8},
        "facts": {"store": "etcd", "under": HOSTILE[0]},
        "waves": [
            {"wave": 0, "rows": 10, "bytes": 5, "seconds": 0.5, "value_bytes": 100},
            {"wave": 1, "rows": 20, "bytes": 5, "seconds": 0.0, "value_bytes": 400},
        ],
        "findings": [{"key": k, "outcome": "rejected", "detail": k} for k in HOSTILE],
        "reason": HOSTILE[1],
    }
    return Report(job="snapshot", run="r", ending=JobEnding.FINDINGS, **{**given, **more})  # type: ignore[arg-type]


def test_no_key_is_markup_and_nothing_is_evaluated() -> None:
    report = _report()
    page = html(report, charts(report))
    tags = {tag.lower() for tag in re.findall(r"<\s*/?\s*([a-zA-Z]+)", page)}
    assert not tags & {"script", "img", "iframe", "link", "object"}
    assert "&lt;script&gt;" in page
    assert "{{ 7*7 }}" in page
    assert "{% raw %}" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_unprintable_characters_are_shown_escaped() -> None:
    report = _report()
    page = html(report, charts(report))
    assert "\u202e" not in page
    assert "\\u202e" in page
    assert "\x1b" not in page
    page.encode()


def test_all_files_are_written_for_the_owner_alone(tmp_path: Path) -> None:
    shown = write_report(tmp_path, _report())
    assert shown == tmp_path / "report.html"
    names = {file.name for file in tmp_path.iterdir()}
    plots = {"rows.png", "rate.png", "sizes.png", "findings.png"}
    assert names == {"report.json", "report.html", *plots}
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in plots)
    assert json.loads((tmp_path / "report.json").read_text())["ending"] == "findings"


def test_rates_are_rows_by_seconds() -> None:
    drawn = {chart.name: chart for chart in charts(_report())}
    assert drawn["rate"].bars[0].height == 20
    assert [bar.height for bar in drawn["sizes"].bars] == [10, 20]


def test_findings_are_counted_by_namespace() -> None:
    findings = [{"key": key} for key in ("a/b/1", "a/b/2", "a/1", "1")]
    (chart,) = charts(_report(waves=(), findings=findings))
    assert {bar.name: bar.height for bar in chart.bars} == {"a/b": 2, "a": 1, "/": 1}


@pytest.mark.parametrize("waves", [0, 1, 59, 60, 61, 1000])
def test_a_chart_has_few_bars_and_all_rows(waves: int) -> None:
    rows = [{"wave": n, "rows": 1, "seconds": 1.0} for n in range(waves)]
    drawn = {chart.name: chart for chart in charts(_report(waves=rows, findings=()))}
    bars = drawn["rows"].bars if waves else []
    assert len(bars) <= 60
    assert sum(bar.height for bar in bars) == waves


def test_a_report_of_nothing_has_no_plots(tmp_path: Path) -> None:
    write_report(tmp_path, _report(waves=(), findings=(), counts={}, facts={}, reason=""))
    assert {file.name for file in tmp_path.iterdir()} == {"report.json", "report.html"}
