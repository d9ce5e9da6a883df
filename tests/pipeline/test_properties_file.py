"""``--properties-file``: Spark reads it when it starts, and ``--conf`` wins over it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from kip30.cli._exit_codes import Status
from kip30_conformance.polling import eventually, time_scale

from .store import embedded

CANARY = "kanarienvogel-4711"


def test_spark_starts_with_the_settings_of_the_file(tmp_path: Path) -> None:
    store, events = embedded(tmp_path, 3), tmp_path / "its events"
    events.mkdir()
    file = tmp_path / "settings of spark.conf"
    file.write_text(
        "# as for spark-submit\n"
        "spark.master              local[1]\n"
        "spark.app.name            of the file\n"
        "spark.driver.memory=701m\n"
        f"spark.kip30.word          {CANARY}\n"
        "spark.kip30.both          of the file\n"
        "spark.eventLog.enabled    true\n"
        "spark.eventLog.compress   false\n"
        f"spark.eventLog.dir        {events.as_uri()}\n"
    )
    words = ["preflight", str(store), "--properties-file", str(file)]
    words += ["--conf", "spark.kip30.both=of the pair", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "kip30", "pipeline", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        started = eventually(
            lambda: [line for line in _lines_of(process.pid) if "-Xmx701m" in line],
            within=60 * time_scale(),
            what="Spark's process has the memory that the file gives it",
        )
        stdout, stderr = process.communicate(timeout=60 * time_scale())
    assert process.returncode == Status.OK, stderr
    assert CANARY not in started[0], "other users see the arguments of a process"
    assert json.loads(stdout.splitlines()[-1])["counts"]["slots_connected"] == 1
    assert _settings(events) >= {
        ("spark.app.name", "of the file"),
        ("spark.kip30.word", CANARY),
        ("spark.kip30.both", "of the pair"),
        ("spark.master", "local[1,3]"),
        ("spark.ui.enabled", "false"),
    }


def _lines_of(process: int) -> Iterator[str]:
    with suppress(psutil.Error):
        for child in psutil.Process(process).children(recursive=True):
            with suppress(psutil.Error):
                yield " ".join(child.cmdline())


def _settings(events: Path) -> set[tuple[str, str]]:
    """Return the settings of the session that has left its log in *events*."""
    lines = (line for path in events.rglob("events*") for line in path.read_text().splitlines())
    found = (one for one in map(json.loads, lines) if "Spark Properties" in one)
    return {pair for one in found for pair in one["Spark Properties"].items()}
