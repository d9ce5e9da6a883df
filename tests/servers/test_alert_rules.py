"""The rules for Prometheus, run by its `promtool` on samples that fire each of them."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from kip30_conformance.servers.installed import ServerMissingError, find

RULES = Path(__file__).parents[2] / "docs" / "examples" / "alerts.yaml"
TESTS = Path(__file__).with_name("alerts_test.yaml")

pytestmark = pytest.mark.large  # the full set alone builds promtool


@pytest.fixture(scope="module")
def promtool() -> tuple[str, ...]:
    try:
        return find("promtool").command
    except ServerMissingError:
        how = "run docker/install-servers --recipes docker/tools promtool"
        assert "KIP30_REQUIRE_SERVERS" not in os.environ, f"promtool is not installed: {how}"
        pytest.skip(f"promtool is not installed: {how}")


def checked(*command: str | Path) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_prometheus_takes_the_rules(promtool: tuple[str, ...]) -> None:
    assert "9 rules found" in checked(*promtool, "check", "rules", "--lint-fatal", RULES)


def test_each_alert_fires_when_it_should(promtool: tuple[str, ...]) -> None:
    assert "SUCCESS" in checked(*promtool, "test", "rules", TESTS)


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    cases = re.split(r"\balertname: ", TESTS.read_text())[1:]
    fired = {case.split()[0] for case in cases if "exp_labels" in case}
    assert fired == set(re.findall(r"- alert: (\w+)", RULES.read_text()))
