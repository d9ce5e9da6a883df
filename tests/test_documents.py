"""The documents say what is: their examples run, their links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

from kip30_conformance.all_suites import SUITES
from kip30_conformance.report.results import case_id

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
CASES = re.compile(r"\[([A-Z]\d+(?:[^\w\]]+[A-Z]\d+)*)\]")
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@pytest.mark.parametrize(("document", "least"), [("README.md", 20), ("docs/semantics.md", 5)])
def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, least: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KIP30_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(ROOT / document), module_relative=False)
    assert results.failed == 0
    assert results.attempted > least


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    missing = [
        link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()
    ]
    assert not missing


def test_both_commands_of_the_readme_are_those_that_are_run() -> None:
    readme = (ROOT / "README.md").read_text()
    command = "python3 -m venv .venv && .venv/bin/pip install --quiet tox && .venv/bin/tox"
    assert command in readme
    assert command in (ROOT / ".ci" / "run").read_text()


def test_the_cases_that_are_named_exist() -> None:
    semantics = (ROOT / "docs" / "semantics.md").read_text()
    named = {case for cases in CASES.findall(semantics) for case in re.findall(r"\w+", cases)}
    assert len(named) > 50
    assert named <= {case_id(name) for suite in SUITES for name in vars(suite)}
