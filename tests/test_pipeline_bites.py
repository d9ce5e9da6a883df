"""Mutants of the pipeline: each one fails the test that it names, or that test proves nothing.

A mutant is a copy of the packages with one mistake in it, which comes first on the path of the
test's process and of Spark's workers. They need the extra ``spark``, and all servers.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kip30_conformance.polling import time_scale

from .mutants.pipeline import MUTANTS, Edit, mutated

ROOT = Path(__file__).parents[1]
SECONDS = 150.0
SLACK = 30.0
ACQUITTED = (
    "P03-digest-without-the-key",
    "P04-done-waves-are-read-again",
    "P08-writes-carry-no-fence",
    "P10-a-conflict-is-overwritten",
    "P17-an-empty-value-is-none",
    "P20-a-dry-run-writes",
    "P24-a-gap-is-swallowed",
    "P25-deletions-are-left-out",
    "P38-newer-manifests-are-read",
    "P46-slashes-too-many-are-dropped",
)
ACCIDENT = re.compile(
    r"\b(Syntax|Indentation|Import|ModuleNotFound|Name|UnboundLocal|Attribute|Type)Error\b"
)
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(SECONDS + 2 * SLACK)]


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_convicted(name: str, tmp_path: Path) -> None:
    node, edits = MUTANTS[name]
    status, printed = ended(name, edits, [node], tmp_path)
    verdicts = [line for line in printed.splitlines() if line.startswith(f"FAILED {node}")]
    assert (status, len(verdicts)) == (pytest.ExitCode.TESTS_FAILED, 1), printed[-8_000:]
    print(verdicts[0])  # noqa: T201  for `-rP`: why it failed
    assert not ACCIDENT.search(verdicts[0]), printed[-8_000:]


def test_the_sound_pipeline_is_acquitted(tmp_path: Path) -> None:
    nodes = [MUTANTS[name].node for name in ACQUITTED]
    status, printed = ended("none", (), nodes, tmp_path)
    assert status == pytest.ExitCode.OK, printed[-8_000:]
    # All of them, and nothing else: a test that is not there ends pytest by another status.
    assert re.search(r"^\d+ passed in ", printed, re.MULTILINE), printed[-8_000:]


def ended(name: str, edits: tuple[Edit, ...], nodes: list[str], folder: Path) -> tuple[int, str]:
    """Run the tests *nodes* with *edits*; return the exit code of pytest and what it printed."""
    path = [str(mutated(name, edits, folder / "mutant")), os.environ.get("PYTHONPATH", "")]
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            [*words, f"--basetemp={folder / 'work'}", *nodes],
            cwd=ROOT,
            env={
                **os.environ,
                # Without safe paths the checkout would come before the mutant.
                "PYTHONSAFEPATH": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, [*path, str(ROOT)])),
                "COLUMNS": "400",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(SECONDS * time_scale())
        finally:
            if process.poll() is None:
                kill(process)
    return status, (folder / "output").read_text(errors="replace")


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill *process* with its group, and the processes that it started outside of that."""
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for one in family:
        if one.is_running():
            one.kill()
    process.wait()
