"""A short storm on each store: that it happens, is judged, and nothing is wrong."""

import json
from pathlib import Path

import pytest

from kip30_conformance.servers import STORES
from kip30_conformance.servers.needing import needed
from kip30_conformance.storm import Conclusion, run

SECONDS = 20.0
SEED = 3

pytestmark = [pytest.mark.fault, pytest.mark.heavy, pytest.mark.timeout(240)]


@pytest.mark.parametrize("store", STORES)
def test_a_short_storm(store: str, tmp_path: Path) -> None:
    needed(store).close()
    summary = run(store, seconds=SECONDS, seed=SEED, out=tmp_path)
    told = {one.invariant: (one.conclusion.value, one.violations) for one in summary.findings}
    assert not [one for one in summary.findings if one.conclusion is Conclusion.VIOLATION], told
    assert {told[invariant][0] for invariant in ("I3", "I8", "I9", "I10")} == {"ok"}
    assert any(seen for _, seen in summary.faults.values())
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["exit_code"] == summary.exit_code
    assert (tmp_path / "report.md").read_text().startswith(f"# Random faults on {store}")
