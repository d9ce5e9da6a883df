"""A short storm on each store: that it happens, is judged, and nothing is wrong."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from kip30_conformance.servers import STORES
from kip30_conformance.servers.needing import needed
from kip30_conformance.storm import Conclusion, Finding, Summary, run

SAFETY = {"I1", "I2", "I3", "I4", "I5", "I11", "I12", "I13", "I15", "I16"}
"""The invariants that hold at any time; the others are about what a calm is long enough for."""
SECONDS = 20.0
SEED = 3

pytestmark = [pytest.mark.fault, pytest.mark.heavy, pytest.mark.timeout(240)]


class Storm(NamedTuple):
    store: str
    summary: Summary
    folder: Path


@pytest.fixture(scope="module", params=STORES)
def storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    store: str = request.param
    needed(store).close()
    folder = tmp_path_factory.mktemp(store)
    return Storm(store, run(store, seconds=SECONDS, seed=SEED, out=folder), folder)


def test_a_short_storm_breaks_no_promise(storm: Storm) -> None:
    """One failure convicts: `tests/gate/selection.py` names this test."""
    assert [one for one in _violations(storm) if one.invariant in SAFETY] == []


def test_a_short_storm_is_judged_and_reported(storm: Storm) -> None:
    assert _violations(storm) == []
    judged = {one.invariant: one.conclusion.value for one in storm.summary.findings}
    assert {judged[invariant] for invariant in ("I3", "I8", "I9", "I10")} == {"ok"}
    assert any(seen for _, seen in storm.summary.faults.values())
    report = json.loads((storm.folder / "report.json").read_text())
    assert report["exit_code"] == storm.summary.exit_code
    assert (storm.folder / "report.md").read_text().startswith(f"# Random faults on {storm.store}")


def _violations(storm: Storm) -> list[Finding]:
    return [one for one in storm.summary.findings if one.conclusion is Conclusion.VIOLATION]
