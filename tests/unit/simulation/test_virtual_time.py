"""The pytest plugin: which tests it runs, what repeats, and what ends a test or a whole run."""

import os
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from kip30_conformance.simulation import virtual_time

ROOT = Path(__file__).parents[3]
CORE = "tests/unit/core"
FILES = (
    "test_banned_members.py",
    "test_callbacks.py",
    "test_campaign.py",
    "test_candidate_line.py",
    "test_closing.py",
    "test_deltas.py",
    "test_directed_campaign.py",
    "test_dispatcher.py",
    "test_group_close.py",
    "test_kafka_elector.py",
    "test_kafka_elector_callbacks.py",
    "test_lease.py",
    "test_lifecycle.py",
    "test_lost_answers.py",
    "test_lost_callbacks.py",
    "test_lost_terms.py",
    "test_member_lifecycle.py",
    "test_member_phases.py",
    "test_members.py",
    "test_metered_drivers.py",
    "test_metrics.py",
    "test_own_record_watch.py",
    "test_past_term_writer.py",
    "test_preferred_candidates.py",
    "test_rejoin.py",
    "test_term_log.py",
    "test_timer.py",
    "test_unreadable.py",
    "test_vacancies.py",
    "test_without_rejoin.py",
)
"""Those of the core that run in virtual time."""

HEAD = """
import signal, threading, time
from pathlib import Path
import pytest
from kip30.runtime import dispatcher

@pytest.fixture(autouse=True)
def end():
    yield
    assert threading.current_thread().name in ("main", "MainThread")
    Path("ended").write_text(type(dispatcher.threading).__name__)

def start(target):
    threading.Thread(target=target, name="t").start()
"""
VIRTUAL = "\n@pytest.mark.virtual_time\n"
AFTERWARDS = """
def test_afterwards():
    assert type(dispatcher.threading.Event()) is type(threading.Event())
    assert threading.Event.__module__ == "threading"
"""


def pytest_in(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Run pytest with the plugin in another process; return its exit code and what it prints."""
    inherited = {key: value for key, value in os.environ.items() if key != "KIP30_VIRTUAL_TIME"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_timeout", *words],
        cwd=folder,
        env={**inherited, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(f"pytest_plugins = [{virtual_time.__name__!r}]")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error")
    return tmp_path


def test_the_files_of_the_core_are_marked() -> None:
    marked = {
        path.name
        for path in (ROOT / CORE).glob("test_*.py")
        if "mark.virtual_time" in path.read_text()
    }
    assert marked == {*FILES}


def test_the_full_set_runs_them_in_real_time_in_one_environment() -> None:
    tox = ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    choice = "KIP30_VIRTUAL_TIME = none"
    real = [name for name in tox.sections() if choice in tox[name].get("set_env", "").splitlines()]
    assert real == ["testenv:core"]
    full = next(line for line in tox["tox"]["labels"].splitlines() if line.startswith("full = "))
    assert {"core", "py312", "py313"} <= {*full.removeprefix("full = ").split(", ")}


@pytest.fixture(scope="module")
def runs() -> list[str]:
    """Return what is printed of the same tests in two processes whose sets have other orders."""
    test = f"{CORE}/test_own_record_watch.py"
    printed = []
    for seed in ("1", "2"):
        status, text = pytest_in(
            ROOT, test, PYTHONHASHSEED=seed, KIP30_VIRTUAL_TIME="marked", KIP30_TIME_SCALE=seed
        )
        assert status == 0, text
        printed.append(next(line for line in text.splitlines() if "virtual time:" in line))
    return printed


@pytest.mark.case("D15")
@pytest.mark.medium
def test_d15_tests_of_the_core_have_one_trace(runs: list[str]) -> None:
    assert "virtual time: 9 tests, " in runs[0]
    assert runs[0].rpartition("seed 1, trace ")[2] == runs[1].rpartition("seed 1, trace ")[2] != ""


@pytest.mark.case("D18")
@pytest.mark.medium
def test_d18_tests_after_one_that_failed_run_in_real_time(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        HEAD
        + VIRTUAL
        + "def test_stuck(): threading.Event().wait()"
        + VIRTUAL
        + "def test_raises(): time.sleep(100); assert time.monotonic() < 0"
        + VIRTUAL
        + "def test_thread(): start(lambda: 1 / 0); time.sleep(1)\n"
        + AFTERWARDS
    )
    status, printed = pytest_in(folder, "--virtual-time-seed=7")
    assert status == 1
    assert "wait for each other at 0.0" in printed
    assert "--virtual-time-seed=7" in printed
    assert "Exception in thread t" in printed
    assert "3 failed, 1 passed" in printed, printed


@pytest.mark.case("D18")
@pytest.mark.medium
@pytest.mark.parametrize("place", ["thread", "main"])
def test_d18_ctrl_c_ends_the_run(folder: Path, place: str) -> None:
    strike = {
        "thread": "threading.Timer(9, signal.raise_signal, [signal.SIGINT]).start()",
        "main": "signal.raise_signal(signal.SIGINT)",
    }
    (folder / "test_it.py").write_text(
        HEAD
        + VIRTUAL
        + f"def test_waits(): {strike[place]}; time.sleep(3_600)"
        + "\ndef test_never(): Path('never').touch()"
    )
    status, printed = pytest_in(folder)
    assert status == pytest.ExitCode.INTERRUPTED, printed
    assert "KeyboardInterrupt" in printed
    assert "Exception in thread" not in printed
    assert (folder / "ended").read_text() != "module", "torn down when no simulation ran"
    assert not (folder / "never").exists()


@pytest.mark.medium
def test_a_thread_that_blocks_the_process_is_ended_by_the_limit_of_the_test(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        HEAD
        + "import select\nreal = select.epoll()\n@pytest.mark.timeout(1)"
        + VIRTUAL
        + "def test_blocks(): start(real.poll); time.sleep(9)"
        + AFTERWARDS
    )
    status, printed = pytest_in(folder)
    assert status == 1
    assert "Timeout" in printed
    assert "1 failed, 1 passed" in printed, printed


CHOICES = """
import time, pytest
from kip30_conformance.polling import time_scale
def is_virtual(): return type(time).__name__ != "module", time_scale()
@pytest.mark.virtual_time
def test_marked(): print("marked", is_virtual())
@pytest.mark.virtual_time
@pytest.mark.real_time("the reason")
def test_real(): print("real", is_virtual())
def test_other(): print("other", is_virtual())
@pytest.mark.virtual_time(always=True)
def test_always(): print("always", is_virtual())
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "environment", "virtual"),
    [
        ([], "marked", {"marked", "always"}),
        (["--virtual-time=all"], "none", {"marked", "other", "always"}),
        ([], "none", {"always"}),
    ],
)
def test_an_option_or_a_variable_selects_the_tests_in_virtual_time(
    folder: Path, words: list[str], environment: str, virtual: set[str]
) -> None:
    (folder / "test_it.py").write_text(CHOICES)
    status, printed = pytest_in(
        folder, "-s", *words, KIP30_VIRTUAL_TIME=environment, KIP30_TIME_SCALE="3"
    )
    assert status == 0, printed
    names = {"marked", "real", "other", "always"}
    assert {name for name in names if f"{name} (True, 1.0)" in printed} == virtual
    assert {name for name in names if f"{name} (False, 3.0)" in printed} == names - virtual


@pytest.mark.medium
def test_an_unknown_choice_is_refused(folder: Path) -> None:
    status, printed = pytest_in(folder, KIP30_VIRTUAL_TIME="sometimes")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "KIP30_VIRTUAL_TIME" in printed


@pytest.mark.medium
def test_a_module_that_is_imported_while_a_test_runs_fails_it(folder: Path) -> None:
    (folder / "kip30_driver.py").write_text("import time")
    (folder / "test_it.py").write_text("def test_it(): import kip30_driver")
    status, printed = pytest_in(folder, "--virtual-time=all")
    assert status == 1
    assert "kip30_driver: imported while the test ran" in printed
