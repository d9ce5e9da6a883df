"""``--properties-file``: Spark reads it when it starts, and ``--conf`` wins over it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kip30.cli._exit_codes import Status
from kip30_conformance.polling import time_scale

from .store import write_properties

CANARY = "kanarienvogel-4711"


def test_spark_starts_with_the_settings_of_the_file(tmp_path: Path) -> None:
    """Its log has them; the job ends once it has begun, at a store that is not there."""
    events = tmp_path / "its events"
    events.mkdir()
    file = tmp_path / "settings of spark.conf"
    file.write_text(
        "# as for spark-submit\n"
        "spark.master              local[1]\n"
        "spark.app.name            of the file\n"
        "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -Dkip30.test=given\n"
        f"spark.kip30.word={CANARY}\n"
        "spark.kip30.both          of the file\n"
        "spark.eventLog.enabled    true\n"
        "spark.eventLog.compress   false\n"
        f"spark.eventLog.dir        {events.as_uri()}\n"
        "spark.redaction.regex     nothing\n"
    )
    nowhere = {"plugin.backend": "etcd", "plugin.etcd.endpoints": "127.0.0.1:1"}
    store = write_properties(tmp_path / "etcd.properties", nowhere | _timeouts(500))
    words = ["snapshot", str(store), "--out", str(tmp_path / "run"), "--properties-file", str(file)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kip30",
            "pipeline",
            *words,
            "--conf",
            "spark.kip30.both=of the pair",
        ],
        capture_output=True,
        text=True,
        timeout=60 * time_scale(),
        check=False,
    )
    assert done.returncode == Status.UNAVAILABLE, done.stderr
    log = _start_in(events)
    assert log["Spark Properties"].items() >= {
        ("spark.app.name", "of the file"),
        ("spark.kip30.word", CANARY),
        ("spark.kip30.both", "of the pair"),
        ("spark.master", "local[1,3]"),
        ("spark.ui.enabled", "false"),
    }
    of_java = log["System Properties"]
    assert of_java["kip30.test"] == "given", "the JVM is started with the options of the file"
    arguments = of_java["sun.java.command"]
    assert "spark.kip30.both=of the pair" in arguments
    assert CANARY not in arguments, "other users see the arguments of a process"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--properties-file={file} pyspark-shell", "names a --properties-file too"),
        ("--conf 'spark.x=1", "is not written as a shell does: No closing quotation"),
    ],
)
def test_a_second_file_in_the_environment_is_refused(
    tmp_path: Path, arguments: str, told: str
) -> None:
    """Spark reads the last one alone, and would leave out the one of the command line."""
    file, out = tmp_path / "spark.conf", tmp_path / "run"
    file.write_text("spark.master local[1]\n")
    store = write_properties(tmp_path / "store.properties", {"plugin.backend": "embedded"})
    words = ["snapshot", str(store), "--out", str(out), "--properties-file", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "kip30", "pipeline", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": arguments.format(file=file)},
        timeout=60 * time_scale(),
        check=False,
    )
    assert done.returncode == Status.USAGE, done.stderr
    assert f"PYSPARK_SUBMIT_ARGS {told}" in done.stderr
    assert not out.exists()


def _timeouts(milliseconds: int) -> dict[str, str]:
    names = ("connect", "operation")
    return {f"plugin.{name}.timeout.ms": str(milliseconds) for name in names}


def _start_in(events: Path) -> dict[str, Any]:
    """Return what the log in *events* says about the start of Spark."""
    lines = (line for path in events.rglob("events*") for line in path.read_text().splitlines())
    return next(one for one in map(json.loads, lines) if "Spark Properties" in one)
