"""The pipeline's tests notice plausible mistakes: each mutant is convicted by the test named.

They need the extra ``spark``, the stores' extras and their servers, and a quarter of an hour:
``python -m pytest tests/test_pipeline_bites.py``.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from kip30_conformance.patience import TIME_SCALE

from .mutants.pipeline import MUTANTS, Mutant

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
PARTS = ("backends", "conformance", "kip30", "tests")
FAILED = 1
SOUND = ("digest_without_key", "nonce_of_the_attempt", "newer_manifest_is_read")
"""Mutants of the driver, of a library and of pure code: their tests pass without the mistake."""


@pytest.mark.timeout(400 * TIME_SCALE)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_convicted(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    copied(tmp_path)
    mutate(tmp_path / mutant.file, mutant)
    ended, printed = ran(tmp_path, mutant.test)
    assert ended == FAILED, printed
    assert f"FAILED tests/{mutant.test.partition('[')[0]}" in printed


@pytest.mark.timeout(400 * TIME_SCALE)
@pytest.mark.parametrize("name", SOUND)
def test_sound_code_is_acquitted(name: str, tmp_path: Path) -> None:
    copied(tmp_path)
    ended, printed = ran(tmp_path, MUTANTS[name].test)
    assert ended == 0, printed


def copied(folder: Path) -> None:
    """Copy everything that tests import, so that nothing of the checkout is in their way."""
    for part in PARTS:
        copytree(ROOT / part, folder / part, ignore=ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())


def mutate(file: Path, mutant: Mutant) -> None:
    source = file.read_text()
    assert source.count(mutant.sound) == 1, f"{mutant.sound!r} is not once in {file.name} any more"
    file.write_text(source.replace(mutant.sound, mutant.broken))


def ran(folder: Path, test: str) -> tuple[int, str]:
    """Run *test* of the copy in *folder*; return pytest's exit status and what it printed."""
    paths = [folder, folder / "backends", folder / "conformance"]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-rf", "-p", "no:cacheprovider"),
            *(f"--basetemp={folder / 'work'}", f"tests/{test}"),
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=300 * TIME_SCALE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, printed
