from typing import Any

from kip30_conformance.report.results import Check, Level, Outcome, Store, Summary
from kip30_conformance.report.support_table import support


def report(name: str, *outcomes: Outcome, nodes: str = "1") -> dict[str, Any]:
    checks = [
        Check(
            case="S03",
            name=f"test_S03_{number}",
            suite="StorageTests",
            about=f"Proof {number}.\nMore.",
            level=Level.CORE,
            outcome=outcome,
            seconds=1.0,
            detail="Skipped: no way" if outcome is Outcome.SKIPPED else "",
        )
        for number, outcome in enumerate(outcomes)
    ]
    store = Store(
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
    good = report("good", Outcome.PASSED, Outcome.SKIPPED)
    bad = report("bad", Outcome.PASSED, Outcome.FAILED, nodes="3")
    table = support([good, bad])
    assert "| case | what its checks prove | good | bad, 3 nodes |" in table
    assert "| S03 | Proof 0.<br>Proof 1. | yes | **no** |" in table
    assert "| commit | c0ffee | c0ffee |" in table
    assert "| fencing | yes | no, refused |" in table
    assert "| good | S03 | test_S03_1 | no way |" in table


def test_what_nobody_ran_is_said() -> None:
    table = support([report("good", Outcome.PASSED), report("idle")])
    assert "| S03 | Proof 0. | yes | not run |" in table
    assert "Skipped checks" not in table
