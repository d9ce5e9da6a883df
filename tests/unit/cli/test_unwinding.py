"""A signal is not lost in the places where Python drops what is raised."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SWALLOWING = {
    "import": "import struck",
    "finalizer": "class Struck:\n    def __del__(self):\n        import struck\nStruck()",
}
_STRUCK = """
import os, signal, time
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.05)
print("went on", flush=True)
"""
_PROGRAM = """
import time
from kip30.cli.unwinding import unwind_on_signals
unwind_on_signals()
{place}
time.sleep(60)
"""


@pytest.mark.parametrize("place", _SWALLOWING.values(), ids=_SWALLOWING)
def test_a_signal_waits_until_it_can_be_raised(place: str, tmp_path: Path) -> None:
    (tmp_path / "struck.py").write_text(_STRUCK)
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(place=place)],
        env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
        capture_output=True,
        check=False,
        timeout=60,
    )
    expected = (128 + signal.SIGTERM, b"went on\n", b"")
    assert (ended.returncode, ended.stdout, ended.stderr) == expected
