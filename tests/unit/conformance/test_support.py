from typing import Any

from kip30_conformance.report.results import Check, CheckOutcome, Level, StoreUnderTest, Summary
from kip30_conformance.report.support_table import support


def report(name: str, *outcomes: CheckOutcome, nodes: str = "1") -> dict[str, Any]:
    checks = [
        Check(
            case="S03",
            name=f"test_S03_{number}",
            suite="StorageTests",
            about=f"Proof {number}.\nMore.",
            level=Level.CORE,
            outcome=outcome,
            seconds=1.0,
            detail="Skipped: no way" if outcome is CheckOutcome.SKIPPED else "",
        )
        for number, outcome in enumerate(outcomes)
    ]
    store = StoreUnderTest(
        name=name,
        description={"version": "1.2"},
        settings={},
        capabilities={"fencing": name == "good"},
        limits={"value_bytes": 10},
    )
    return Summary(
        store=store,
        checks=checks,
        level=Level.CORE,
        seed=1,
        started="now",
        seconds=2.0,
        environment={"nodes": nodes, "commit": "c0ffee"},
    ).to_json()


def test_a_case_is_as_good_as_its_worst_check() -> None:
    good = report("good", CheckOutcome.PASSED, CheckOutcome.SKIPPED)
    bad = report("bad", CheckOutcome.PASSED, CheckOutcome.FAILED, nodes="3")
    page = support([good, bad])
    assert "| case | good | bad, 3 nodes |" in page
    assert "| S03 | yes | **no** |" in page
    assert "\n* S03: Proof 0. Proof 1.\n" in page
    assert "| good | 1.2 | c0ffee | passed, of what could be tested | core |" in page
    assert "| fencing | yes | no, refused |" in page
    assert "### good\n\n* no way: `test_S03_1`\n" in page
    assert "### bad" not in page


def test_the_least_version_is_named_where_a_store_has_one() -> None:
    safe, other = report("safe", CheckOutcome.PASSED), report("other", CheckOutcome.PASSED)
    assert "least version" not in support([safe, other])
    safe["store"]["description"]["least version"] = "1.1"
    assert "| least version | 1.1 |  |" in support([safe, other])


def test_a_case_that_was_not_run_is_reported() -> None:
    page = support([report("good", CheckOutcome.PASSED), report("idle")])
    assert "| S03 | yes | not run |" in page
    assert "Skipped checks" not in page


def test_no_line_is_long_however_many_reports_there_are() -> None:
    names = ["embedded", "zookeeper", "etcd", "consul", "cassandra"]
    reports = [report(name, CheckOutcome.SKIPPED, nodes=nodes) for name in names for nodes in "13"]
    reports[2]["store"]["description"]["version"] = "3.9.4-" + "0" * 60
    reports[2]["checks"][0]["about"] = " ".join(["a proof of many words"] * 20)
    page = support(reports)
    assert [line for line in page.splitlines() if len(line) > 120] == []
    row = "| S03 |"
    assert sum(line.count("skipped") for line in page.splitlines() if line.startswith(row)) == 10
