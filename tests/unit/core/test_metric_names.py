"""The page on metrics: its names, types and labels are those of the code, also in its alerts."""

import re
from pathlib import Path

import pytest

from kip30.metrics.definitions import DEFINITIONS
from kip30.metrics.opentelemetry import name_of, unit_of
from kip30_conformance.suites.metrics import PROMISED

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
RULES = DOCUMENT.parent / "examples" / "alerts.yaml"
ROW = re.compile(r"^\| `(kip30_\w+)` \| (\w+) \| (.*?) ?\|", re.MULTILINE)
NAME = re.compile(r"\bkip30_\w+")
SELECTED = re.compile(r"\b(kip30_\w+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\)")
PARTS = re.compile(r"_(bucket|sum|count)$")
ALWAYS = {"store", "le"}
OF_TARGETS = {"instance"}
"""Labels that Prometheus adds to each sample."""


@pytest.fixture(scope="module")
def alerts() -> str:
    return RULES.read_text()


def _family(name: str) -> str:
    base = PARTS.sub("", name)
    kinds = {one.name: one.kind for one in DEFINITIONS}
    return base if kinds.get(base) == "histogram" else name


def test_the_table_has_the_names_types_and_labels() -> None:
    rows = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(DOCUMENT.read_text())
    }
    assert rows == {one.name: (one.kind, one.labels) for one in DEFINITIONS}


def test_the_suite_promises_the_names_types_and_labels() -> None:
    assert {name: (kind, labels - {"le"}) for name, (kind, labels) in PROMISED.items()} == {
        one.name: (one.kind, set(one.labels)) for one in DEFINITIONS
    }


def test_each_name_of_an_alert_exists(alerts: str) -> None:
    named = set(NAME.findall(alerts))
    assert len(named) > 6
    assert {_family(name) for name in named} <= {one.name for one in DEFINITIONS}
    histograms = {one.name for one in DEFINITIONS if one.kind == "histogram"}
    assert not named & histograms  # they have buckets, sums and counts alone


def test_each_label_of_an_alert_exists(alerts: str) -> None:
    labels = {one.name: {*one.labels, *ALWAYS} for one in DEFINITIONS}
    for name, matchers in SELECTED.findall(alerts):
        assert {one.split("=")[0].strip("~!") for one in matchers.split(",")} <= labels[
            _family(name)
        ]
    for rule in re.split(r"- alert: ", alerts)[1:]:
        used = {_family(name) for name in NAME.findall(rule)}
        for grouped in GROUPED.findall(rule):
            names = {one.strip() for one in grouped.split(",")}
            assert all(names <= labels[name] for name in used), rule


def test_each_label_of_an_annotation_is_of_its_alert(alerts: str) -> None:
    labels = {one.name: {*one.labels, *ALWAYS} for one in DEFINITIONS}
    shown = 0
    for rule in re.split(r"- alert: ", alerts)[1:]:
        grouped = {one.strip() for names in GROUPED.findall(rule) for one in names.split(",")}
        (family,) = {_family(name) for name in NAME.findall(rule.partition("and ")[0])} - {
            "kip30_paused"
        }
        known = grouped or labels[family] | OF_TARGETS
        found = set(re.findall(r"\$labels\.(\w+)", rule))
        assert found <= known, rule
        shown += len(found)
    assert shown > 6


def test_the_page_lists_the_alerts(alerts: str) -> None:
    listed = re.findall(r"^\| `([A-Z]\w+)` \|", DOCUMENT.read_text(), re.MULTILINE)
    assert listed == re.findall(r"- alert: (\w+)", alerts)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for one in DEFINITIONS:
        assert one.name.endswith("_total") == (one.kind == "counter")
        assert one.name.endswith("_seconds") or one.kind != "histogram"
        assert one.about.endswith(".")
        assert len(one.about) < 90


def test_names_of_opentelemetry_have_dots_and_units() -> None:
    assert {name_of(one): unit_of(one) for one in DEFINITIONS if "_s" in one.name} == {
        "kip30.leader.changes.seen": "",
        "kip30.election.duration": "s",
        "kip30.operation.duration": "s",
        "kip30.sessions.lost": "",
        "kip30.lease.remaining": "s",
        "kip30.renewal.duration": "s",
        "kip30.store.last.seen.timestamp": "s",
        "kip30.callback.duration": "s",
    }
