"""Deadlines by the speed of the machine, sizes, and packages of two places."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kip30_backends
from kip30_conformance import machine_speed
from kip30_conformance.machine_speed import LEAST, MOST, measured_time_scale
from kip30_conformance.polling import raise_time_scale, time_scale

ROOT = Path(__file__).parents[2]
CONFTEST = """
from gate.plugin import Sizes
from kip30_conformance.deadlines import Deadlines
from gate.sizes import LIMITS

LIMITS["small"] = 0.02

def pytest_configure(config):
    for name in ("small", "medium", "large", "gate", "safety"):
        config.addinivalue_line("markers", name)
    config.pluginmanager.register(Deadlines(config))
    config.pluginmanager.register(Sizes())
"""
TEST = """
import time
import pytest

@pytest.mark.small
@pytest.mark.timeout({limit})
def test_it():
    time.sleep({seconds})
"""


def ended(
    folder: Path, *, limit: float, seconds: float, scale: float = 2.0
) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TEST.format(limit=limit, seconds=seconds))
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "tests")]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "KIP30_TIME_SCALE": str(scale)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("seconds", "factor"), [(1e-9, MOST), (1e9, LEAST)], ids=["slow machine", "quick machine"]
)
def test_the_factor_is_the_measured_one_within_its_bounds(
    monkeypatch: pytest.MonkeyPatch, seconds: float, factor: float
) -> None:
    works = [work for work, _ in machine_speed._REFERENCES]
    monkeypatch.setattr(machine_speed, "_REFERENCES", [(work, seconds) for work in works])
    assert measured_time_scale() == factor


def test_the_slowest_measurement_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    works = [work for work, _ in machine_speed._REFERENCES]
    for slow in works:
        seconds = [(work, 1e-9 if work is slow else 1e9) for work in works]
        monkeypatch.setattr(machine_speed, "_REFERENCES", seconds)
        assert measured_time_scale() == MOST


def test_the_factor_grows_and_does_not_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIP30_TIME_SCALE", "3")
    raise_time_scale(2.0)
    assert time_scale() == 3.0
    raise_time_scale(4.21)
    assert time_scale() == 4.3
    assert os.environ["KIP30_TIME_SCALE"] == "4.3"


def test_the_limit_of_a_test_follows_the_factor(tmp_path: Path) -> None:
    run = ended(tmp_path, limit=0.5, seconds=2.0, scale=MOST)
    assert run.returncode == 0, run.stdout
    assert "time scale: 20.0" in run.stdout


def test_a_test_that_hangs_is_ended(tmp_path: Path) -> None:
    run = ended(tmp_path, limit=0.1, seconds=3600.0)
    assert run.returncode == 1, run.stdout
    assert "Timeout" in run.stdout


def test_a_test_that_is_long_for_its_size_is_named(tmp_path: Path) -> None:
    run = ended(tmp_path, limit=60.0, seconds=0.03 * MOST)
    assert run.returncode == 0, run.stdout
    assert "longer than their size allows" in run.stdout
    assert "small   test_it.py::test_it" in run.stdout
    assert "longer" not in ended(tmp_path, limit=60.0, seconds=0.0).stdout


def test_packages_of_two_places_are_refused() -> None:
    """From the checkout python takes kip30, and nothing else unless that is installed editable."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gate/test_plugin.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if Path(kip30_backends.__file__).is_relative_to(ROOT / "backends"):
        assert run.returncode == 0, run.stdout + run.stderr
    else:
        assert run.returncode == pytest.ExitCode.USAGE_ERROR
        assert "pip install --editable" in run.stderr


def test_collected_tests_are_no_matter_of_the_garbage_collector(
    request: pytest.FixtureRequest,
) -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count()
    assert not any(one is request.node for one in gc.get_objects())
