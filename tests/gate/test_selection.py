"""The contents of the gate; no test is left out of both the gate and the full set."""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from kip30_conformance.catalogue import listed

from .case_table import ROOT, STORES
from .full_set_table import TOX, label, names
from .selection import DECIDING, LEFT_OUT, LONG_ON_SLOWEST, SAFETY

ONLY_IN_FULL = {"F21", "G40", "K70", "K74", "L24", "L28", "M14", "R19", "R42"}
"""Contract cases that consist of crowds and repetitions; the full set alone runs them."""
REFERENCE = re.compile(r"\{\[([\w:-]+)\](\w+)\}")


def words_of(environment: str) -> list[str]:
    """Return the words of the command that runs the tests of *environment*."""
    section = f"testenv:{environment}"
    if section not in TOX:
        section = "testenv:py{312,313}"
    text = TOX[section]["commands"]
    while found := REFERENCE.search(text):
        text = text.replace(found[0], TOX[found[1]][found[2]])
    return text.replace("{posargs:", "").replace("}", "").split()


def holds(environment: str, file: str) -> bool:
    """Return whether *environment* collects *file*."""
    words = words_of(environment)
    ignored = [word.partition("=")[2] for word in words if word.startswith("--ignore")]
    if any(file.startswith(one) or fnmatch(file, one) for one in ignored):
        return False
    return any(file.startswith(word) for word in words if word.startswith("tests"))


TEST_FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))


@pytest.mark.parametrize("file", TEST_FILES)
def test_every_test_is_in_the_full_set(file: str) -> None:
    tested = [name for name in label("full") if name not in {"lint", "types", "verify-types"}]
    assert any(holds(name, file) for name in tested)


@pytest.mark.parametrize("file", TEST_FILES)
def test_every_test_may_be_in_the_gate_unless_it_is_of_another_server(file: str) -> None:
    gate = [name for name in names(TOX["tox"]["env_list"]) if name not in {"lint", "types"}]
    left_out = {"test_older.py", "test_etcd3.py", "test_pipeline_bites.py", "test_real_servers.py"}
    is_elsewhere = Path(file).name in left_out or file.startswith("tests/browser/")
    assert any(holds(name, file) for name in gate) or is_elsewhere


def test_each_case_runs_on_a_server_and_each_core_case_on_all(tmp_path: Path) -> None:
    program, written = ROOT / "tests" / "gate" / "case_table.py", tmp_path / "gate.md"
    subprocess.run([sys.executable, program, written], check=True, capture_output=True)
    text = written.read_text()
    assert text == (ROOT / "docs" / "gate.md").read_text(), f"write it: python {program}"
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    cases = {row[0]: dict(zip(STORES, row[1:], strict=True)) for row in rows[2:]}
    on_no_server = {
        case for case, row in cases.items() if not any(row[one][:1].isdigit() for one in STORES)
    }
    assert on_no_server == ONLY_IN_FULL
    assert DECIDING.keys() | SAFETY.keys() <= cases.keys()
    for case in DECIDING:
        assert "full" not in cases[case].values(), case


def test_each_check_that_is_excluded_exists() -> None:
    checks = {one.name.removeprefix("test_") for one in listed()}
    names = LONG_ON_SLOWEST | LEFT_OUT.keys()
    assert {name.partition("[")[0] for name in names} <= checks


def test_the_cases_about_safety_bear_the_marker_and_no_other_does() -> None:
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    chosen = ["-m", "safety", "tests/conformance/test_embedded.py"]
    run = subprocess.run([*words, *chosen], cwd=ROOT, check=True, capture_output=True, text=True)
    assert set(re.findall(r"::test_([A-Z]\d\d)_", run.stdout)) == SAFETY.keys()
