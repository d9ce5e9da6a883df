"""The rule of the second look, on runs of tests that fail always, once, or together."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROGRAM = Path(__file__).with_name("second_look.py")
CONFTEST = """
from pathlib import Path
from gate.outcomes import Outcomes

def pytest_addoption(parser):
    parser.addoption("--outcomes", type=Path)

def pytest_configure(config):
    config.addinivalue_line("markers", "safety: convicts")
    if config.getoption("outcomes") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(config.getoption("outcomes"), lambda: 2.0))
"""
BEGINNING = """
import os
import pytest
from pathlib import Path

def fail(name, times):
    file = Path(__file__).with_name(name)
    failed = len(file.read_text()) if file.exists() else 0
    if failed < times:
        file.write_text("x" * (failed + 1))
    assert failed >= times, "too late"

def test_passes():
    pass
"""
ONCE = "def test_late(): fail('late', 1)\n"


class Ended(NamedTuple):
    """A run that is over: its exit code, what it printed, and what it left in files."""

    status: int
    printed: str
    unstable: list[dict[str, Any]]
    record: dict[str, Any]
    seconds: list[str]


def ended(folder: Path, tests: str, *arguments: str) -> Ended:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(BEGINNING + tests)
    records = folder / "records"
    run = subprocess.run(
        [sys.executable, PROGRAM, "here", "-p", "no:cacheprovider", *arguments, "test_it.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(PROGRAM.parents[1]),
            "KIP30_GATE_RECORDS": str(records),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (records / "unstable.jsonl").read_text().splitlines()
    record = json.loads((records / "gate" / "here.json").read_text())
    seconds = (records / "seconds" / "here.tsv").read_text().splitlines()
    unstable = list(map(json.loads, lines))
    return Ended(run.returncode, run.stdout + run.stderr, unstable, record, seconds)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_late_test_that_passes_alone_is_unstable(tmp_path: Path, processes: str) -> None:
    run = ended(tmp_path, ONCE, "-n", processes)
    assert run.status == 0, run.printed
    assert run.printed.splitlines()[-1] == "unstable: 1 test_it.py::test_late"
    assert [one["test"] for one in run.unstable] == ["test_it.py::test_late"]
    assert "too late" in run.unstable[0]["message"]
    assert run.record["unstable"] == ["test_it.py::test_late"]
    assert run.record["tests"] == 2


@pytest.mark.parametrize("times", [2, 3, 99])
def test_a_test_that_fails_in_any_second_look_is_red(tmp_path: Path, times: int) -> None:
    run = ended(tmp_path, f"def test_wrong(): fail('wrong', {times})\n")
    assert run.status == 1, run.printed
    assert "failed again, alone: test_it.py::test_wrong" in run.printed
    assert run.unstable == []


def test_five_are_looked_at_again_and_six_are_not(tmp_path: Path) -> None:
    late = "@pytest.mark.parametrize('n', range({0}))\ndef test_late(n): fail(f'late{{n}}', 1)\n"
    for number, status in ((5, 0), (6, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = ended(folder, late.format(number))
        assert run.status == status, run.printed
        assert len(run.unstable) == (0 if status else number)


def test_a_verdict_about_safety_is_red_at_once(tmp_path: Path) -> None:
    run = ended(tmp_path, f"{ONCE}\n@pytest.mark.safety\ndef test_two(): fail('two', 1)\n")
    assert run.status == 1, run.printed
    assert "a verdict about safety: test_it.py::test_two" in run.printed


def test_an_error_of_a_fixture_is_a_failure(tmp_path: Path) -> None:
    broken = "@pytest.fixture\ndef broken(): {0}\ndef test_it(broken): pass\n"
    run = ended(tmp_path, broken.format("raise OSError"))
    assert run.status == 1, run.printed
    late = tmp_path / "late"
    late.mkdir()
    assert ended(late, broken.format("fail('late', 1)")).status == 0


def test_a_skip_in_the_second_look_is_no_pass(tmp_path: Path) -> None:
    skips = "def test_late():\n  if Path('seen').exists(): pytest.skip()\n"
    run = ended(tmp_path, f"{skips}  Path('seen').touch()\n  raise OSError\n")
    assert run.status == 1, run.printed


@pytest.mark.parametrize(
    ("tests", "arguments"),
    [
        ("def test_dies(): os._exit(3)\n", ["-n", "2"]),
        ("def test_dies(): os._exit(3)\n", ["-n", "0"]),
        ("def test_ends(): pytest.exit('over', 1)\n", ["-n", "0"]),
        ("raise OSError\n", ["-n", "0"]),
        ("", ["--no-such-option"]),
        ("", ["-k", "none_has_this_name"]),
    ],
    ids=["worker-dies", "runner-dies", "runner-ends", "not-collected", "usage", "no-test"],
)
def test_a_run_that_breaks_down_is_red_at_once(
    tmp_path: Path, tests: str, arguments: list[str]
) -> None:
    run = ended(tmp_path, tests, *arguments)
    assert run.status != 0, run.printed
    assert "no second look" in run.printed
    assert "second look, 1 of 2" not in run.printed


def test_a_green_run_is_not_looked_at_again(tmp_path: Path) -> None:
    run = ended(tmp_path, "")
    assert (run.status, run.unstable, run.record["tests"]) == (0, [], 1), run.printed
    assert "second look, 1" not in run.printed


def test_the_seconds_of_each_test_are_kept_the_slowest_first(tmp_path: Path) -> None:
    slow = "import time\ndef test_slow(): time.sleep(0.2)\n"
    run = ended(tmp_path, slow, "-n", "2")
    rows = [line.split("\t") for line in run.seconds]
    assert [test for _, test in rows] == ["test_it.py::test_slow", "test_it.py::test_passes"]
    assert float(rows[0][0]) >= 0.2
