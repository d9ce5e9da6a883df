"""Tests that run in one process together, and tests that run first."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from .scheduling import ALONE, SLOWEST_FIRST, ByServer

ROOT = Path(__file__).parents[2]
CONFTEST = """
from gate.scheduling import Scheduling

def pytest_configure(config):
    config.pluginmanager.register(Scheduling())
"""
TEST = """
import json
import os
import pytest

@pytest.fixture(autouse=True)
def kept(request):
    line = json.dumps([request.node.nodeid, os.getpid()])
    with open(os.environ["KEPT"], "a") as file:
        file.write(line + "\\n")

def test_one(*_): pass
def test_two(*_): pass

class TestNodeFault:
    test_three = test_one

class TestRoundTrip:
    test_four = test_five = test_one

class TestStorage:
    test_six = test_seven = test_one
"""
FILES = [
    "tests/conformance/test_cassandra.py",
    "tests/conformance/test_consul.py",
    "tests/conformance/test_etcd.py",
    "tests/unit/cassandra/test_a.py",
    "tests/unit/cassandra/test_b.py",
    "tests/unit/consul/test_c.py",
]


def processes_of(folder: Path) -> list[tuple[str, int]]:
    """Run tests in two processes, and return each test with its process, as they ran."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TEST)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "tests")]))
    chosen = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", *FILES]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "KEPT": str(folder / "kept")},
        check=True,
        capture_output=True,
    )
    return [tuple(json.loads(line)) for line in (folder / "kept").read_text().splitlines()]


def group_of(test: str) -> str:
    """Return the group of tests that must run in the same process as *test*."""
    file, *suite, name = test.split("::")
    if "conformance" not in file:
        return file
    if suite in [["TestNodeFault"], ["TestRoundTrip"]] and "etcd" not in file:
        return f"{file}::servers"
    return "::".join([file, *(suite or [name])])


def test_tests_with_the_same_servers_share_a_process_and_the_slowest_go_first(
    tmp_path: Path,
) -> None:
    ran = processes_of(tmp_path)
    assert len(ran) == len(FILES) * 7
    together = defaultdict[str, set[int]](set)
    for test, process in ran:
        together[group_of(test)].add(process)
    assert {len(processes) for processes in together.values()} == {1}
    assert len({process for _, process in ran}) == 2
    places = [test.startswith("tests/unit/cassandra") for test, _ in ran]
    assert all(places[: len(places) // 6])


def test_each_mutant_of_the_pipeline_may_run_in_any_process() -> None:
    test = f"{ALONE}::test_mutant_is_convicted[P01]"
    assert ByServer._split_scope(ByServer.__new__(ByServer), test) == test


@pytest.mark.parametrize("place", [*SLOWEST_FIRST, ALONE])
def test_each_path_that_is_scheduled_first_exists(place: str) -> None:
    assert (ROOT / place).exists()
