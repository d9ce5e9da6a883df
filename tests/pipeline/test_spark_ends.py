"""Jobs whose Spark ends: they say why, leave a report, and are resumed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kip30.cli._exit_codes import Status
from kip30.pipeline.run.directory import read_manifest
from kip30_conformance.polling import eventually, time_scale

from .snapshots import embedded
from .store import lines
from .stores import contents, fill

VALUES = {f"n/k{number:03}": b"v%d" % number for number in range(400)}


def kip30(*words: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "kip30", "pipeline", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def java_of(process: "subprocess.Popen[str]") -> psutil.Process:
    children = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in children if child.name() == "java")


def is_planned(run: Path) -> bool:
    file = run / "manifest.json"
    return file.exists() and read_manifest(run).planned is not None


@pytest.fixture
def ends(tmp_path: Path) -> list[Path]:
    found: list[Path] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.append(embedded(tmp_path / name))
    fill(found[0], VALUES)
    fill(found[1], {})
    return found


def test_a_jvm_that_is_killed_is_named_and_the_run_goes_on(
    tmp_path: Path, ends: list[Path]
) -> None:
    run = tmp_path / "run"
    words: tuple[Any, ...] = ("migrate", *ends, "--out", run, "--json")
    with kip30(*words, "--rate", 40) as process:
        eventually(lambda: is_planned(run), within=60 * time_scale())
        java_of(process).kill()
        stdout, stderr = process.communicate(timeout=60 * time_scale())
    assert process.returncode == Status.INCOMPLETE, stderr
    report = lines(stdout)[-1]
    assert report["ending"] == "incomplete"
    assert report["reason"].startswith("Spark's process ended: SIGKILL; the kernel may have")
    assert (run / "report.html").exists()
    with kip30(*words, "--resume") as process:
        stdout, stderr = process.communicate(timeout=60 * time_scale())
    assert process.returncode == Status.OK, stderr
    assert contents(ends[1], list(VALUES)) == VALUES


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("spark.driver.memory=much", "Java gateway process exited before"),
        ("spark.executor.heartbeatInterval=often", "SparkIllegalArgumentException: "),
    ],
)
def test_a_spark_that_does_not_start_is_named(
    tmp_path: Path, ends: list[Path], setting: str, reason: str
) -> None:
    with kip30("snapshot", ends[0], "--out", tmp_path / "run", "--conf", setting) as process:
        _, stderr = process.communicate(timeout=60 * time_scale())
    assert process.returncode == Status.UNAVAILABLE, stderr
    last = stderr.splitlines()[-1]
    assert last.startswith("kip30: the Spark job failed: Spark has not started: ")
    assert reason in last


def test_a_jvm_that_is_killed_as_it_starts_is_named(tmp_path: Path, ends: list[Path]) -> None:
    def is_killed() -> bool:
        for child in psutil.Process(process.pid).children(recursive=True):
            # Not the launcher, which prints the words of this one.
            if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                child.kill()
                return True
        return False

    with kip30("snapshot", ends[0], "--out", tmp_path / "run") as process:
        eventually(is_killed, within=60)
        _, stderr = process.communicate(timeout=60 * time_scale())
    assert process.returncode == Status.UNAVAILABLE, stderr
    assert "kip30: the Spark job failed: Spark has not started: " in stderr
