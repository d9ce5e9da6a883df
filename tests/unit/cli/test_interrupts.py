"""Ctrl-C ends the program without a traceback at every moment."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, ended, line_of

STRUCK = """
import os, signal, sys

_, struck, number, *words = sys.argv

class Striker:
    def find_spec(self, name, path=None, target=None):
        if name == struck:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Striker())
from kip30_command import main
sys.argv = ["kip30", *words]
main()
"""
MARKED = """
import os, sys

class Marker:
    def find_spec(self, name, path=None, target=None):
        sys.meta_path.remove(self)
        os.write(1, b"\\n")  # the first import after SIGINT was prepared

from kip30_command import main
sys.meta_path.insert(0, Marker())
main()
"""
IMPORTED = (
    "kip30",
    "kip30.errors",
    "click",
    "kip30.cli",
    "kip30.cli.program",
    "kip30.cli.kv",
    "javaproperties",
    "stevedore",
    "kip30_backends.embedded",
    "sqlite3",
)
"""Modules over the whole of a call, from its beginning to the opening of the store."""


def strike(
    module: str,
    *words: str,
    number: signal.Signals = signal.SIGINT,
    through: Sequence[str] = (),
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command that gets a signal when it begins to import *module*."""
    return subprocess.run(
        [*through, sys.executable, "-c", STRUCK, module, str(int(number)), *words],
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS * time_scale(),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@pytest.mark.parametrize("module", IMPORTED)
@pytest.mark.usefixtures("shell")
def test_an_interrupted_import_is_no_traceback(module: str) -> None:
    result = strike(module, "kv", "list")
    assert result.returncode in {-signal.SIGINT, 128 + signal.SIGINT}
    assert result.stderr == b""


@pytest.mark.usefixtures("shell")
def test_the_strike_is_what_ends_it() -> None:
    assert strike("no_such_module", "kv", "list").returncode == 0


def test_a_signal_that_is_ignored_stays_so(shell: Shell) -> None:
    ignoring = "trap '' INT; exec \"$@\""
    through = ["sh", "-c", ignoring, "sh"]
    result = strike("stevedore", "kv", "list", through=through)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (shell.folder / "store").exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=lambda one: one.name)
@pytest.mark.parametrize("module", ["kip30", "kip30.runner"])
@pytest.mark.usefixtures("shell")
def test_a_signal_for_the_command_does_not_end_a_runner_that_starts(
    module: str, number: signal.Signals
) -> None:
    look = ("grep", "SigIgn", "/proc/self/status")
    result = strike(module, "run", "--service=s", *look, number=number)
    assert result.returncode == 0
    assert not int(result.stdout.split()[1], 16) & 1 << (number - 1)


HOST = os.fsencode(socket.gethostname())
FIRST_PROCESS = ("unshare", "--pid", "--fork", "--kill-child")
"""Runs a command as the first process of a new pid namespace, as in a container."""

needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*FIRST_PROCESS, "true"], capture_output=True, check=False).returncode != 0,
    reason="this system permits no pid namespace here",
)


@needs_namespaces
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT],
    ids=lambda one: one.name,
)
@pytest.mark.parametrize("module", ["kip30", "kip30.runner"])
@pytest.mark.usefixtures("shell")
def test_a_signal_during_start_ends_the_first_process_of_a_container(
    module: str, number: signal.Signals
) -> None:
    words = ("run", "--service=s", "echo", "ran")
    result = strike(module, *words, number=number, through=FIRST_PROCESS)
    assert (result.returncode, result.stdout) == (128 + number, b"")
    # Where nothing may be raised, the signal waits for 10 ms; a line may be printed in these.
    assert result.stderr in {b"", b"kip30: waiting to lead s as %b-1\n" % HOST}


@needs_namespaces
@pytest.mark.usefixtures("shell")
def test_a_signal_that_is_ignored_ends_no_first_process() -> None:
    through = ("sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *FIRST_PROCESS)
    result = strike("click", "kv", "list", number=signal.SIGTERM, through=through)
    assert (result.returncode, result.stderr) == (0, b"")


def test_an_interrupt_at_any_moment_is_no_traceback_of_kip30(shell: Shell) -> None:
    """Python's own start, before the first line of kip30, is left out: its frames may show."""
    program = [sys.executable, "-c", MARKED, "kv", "list"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    codes = set()
    for number in range(0, 31, 3):
        with ended(
            subprocess.Popen(
                program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
            )
        ) as process:
            assert line_of(process.stdout) == ""
            time.sleep(number / 100)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_SECONDS * time_scale())
        codes.add(process.returncode)
        assert b"Traceback" not in err, (number, err.decode())
    assert codes <= {0, -signal.SIGINT, 128 + signal.SIGINT}
    assert -signal.SIGINT in codes
    assert shell.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_the_parent_blocks_ends_a_watch(shell: Shell, number: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        watch = shell.start("kv", "watch", "a/b")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with ended(watch):
        assert line_of(watch.stdout)
        watch.send_signal(number)
        assert watch.wait(PATIENCE_SECONDS * time_scale()) in {-number, 128 + number}
