"""A signal is raised neither where Python drops it nor where it would leave a lock behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kip30.cli._signals import SIGNALS, InterruptingOnSignals

_PLACES = {
    "import": "import struck",
    "finalizer": """
class Struck:
    def __del__(self): strike()
Struck()
""",
    "weak reference": """
class Struck:
    def __eq__(self, other): strike()
    def __hash__(self): return 1
first, second = Struck(), Struck()
weakref.WeakSet([first]).add(second)
""",
    "condition": """
class Struck:
    def acquire(self): pass
    def release(self): pass
    def __enter__(self): strike()
    def __exit__(self, *error): pass
threading.Condition(Struck()).__enter__()
""",
}
_SIGNALS = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: 42}
_STRIKE = """
import os, signal, time

def strike():
    os.kill(os.getpid(), {number:d})
    print("went on", flush=True)
"""
_PROGRAM = """
import sys, threading, time, weakref
from kip30.cli._signals import UnwindingOnSignals
from strike import strike

try:
    with UnwindingOnSignals():
        exec(sys.argv[1])
        {rest}
except KeyboardInterrupt:
    sys.exit(42)
"""


@pytest.mark.parametrize("rest", ["time.sleep(60)", "pass"], ids=["long", "over"])
@pytest.mark.parametrize("number", _SIGNALS)
@pytest.mark.parametrize("place", _PLACES.values(), ids=_PLACES)
def test_a_signal_waits_until_it_can_be_raised(
    place: str, number: signal.Signals, rest: str, tmp_path: Path
) -> None:
    (tmp_path / "strike.py").write_text(_STRIKE.format(number=number))
    (tmp_path / "struck.py").write_text("from strike import strike\nstrike()\n")
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(rest=rest), place],
        env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
        capture_output=True,
        check=False,
        timeout=60,
    )
    expected = (_SIGNALS[number], b"went on\n", b"")
    assert (ended.returncode, ended.stdout, ended.stderr) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_code_that_ends_at_ctrl_c_alone_ends_at_other_signals(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with (
        pytest.raises(SystemExit) as ended,
        InterruptingOnSignals(),
        pytest.raises(KeyboardInterrupt),
    ):
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert [signal.getsignal(one) for one in SIGNALS] == before
