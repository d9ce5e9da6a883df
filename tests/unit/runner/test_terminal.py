"""A command at a terminal: it has what a job of a shell has, and takes nothing that it has not."""

import fcntl
import os
import pty
import shlex
import signal
import struct
import sys
import termios
import threading
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from kip30_conformance.polling import time_scale

from .field import HERE, TIMEOUT, Field, eventually, stat
from .share_field import ShareField

LONG = 100 * TIMEOUT * time_scale()
CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"
SHELL = ("bash", "--norc", "--noediting", "-i")
# Notes each new size of the terminal.
SIZED = r"""#!/bin/bash
trap 'echo "told $$" >> "$KIP30_TEST_NOTES"' WINCH
echo "up $$" >> "$KIP30_TEST_NOTES"
while :; do sleep 0.05; done
"""
# Sets the terminal so that it shows nothing, in its first term only.
SILENT = r"""#!/bin/sh
[ "$KIP30_EPOCH" = 1 ] && stty -echo
echo "up $$" >> "$KIP30_TEST_NOTES"
exec sleep 1000
"""


class Console:
    """An interactive shell on a terminal of its own."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._shown = b""
        self.pid, self._keys = pty.fork()
        if self.pid == 0:
            self._become_shell()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _become_shell(self) -> None:
        os.environ.update(
            PS1="$ ",
            PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
            KIP30_TEST_NOTES=str(self.field.notes_file),
            HISTFILE="",
        )
        os.chdir(self.field.folder)
        os.execvp(SHELL[0], SHELL)  # noqa: S606  (a shell is the point)

    def _read(self) -> None:
        with suppress(OSError):  # the shell has ended
            while more := os.read(self._keys, 4096):
                self._shown += more

    def type(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def run(self, *command: object, runner: str = "tiny_runner.py", after: str = "") -> None:
        """Let the shell start a runner of *command*, with what follows in its line."""
        words = [sys.executable, HERE / runner, self.field.folder, LONG, "--", *command]
        self.type(f"{shlex.join(map(str, words))} {after}\n")

    def await_shown(self, text: str) -> None:
        eventually(lambda: text in self._shown.decode(errors="replace"))

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self._keys, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 80, 0, 0))

    def shows_keys(self) -> bool:
        return bool(termios.tcgetattr(self._keys)[3] & termios.ECHO)

    def await_content(self, name: str, content: str) -> None:
        def is_there() -> bool:
            path = self.field.folder / name
            return path.exists() and path.read_text() == content

        eventually(is_there)

    def close(self) -> None:
        for pid in (self.pid, *self._of_session()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._reader.join()
        os.close(self._keys)

    def _of_session(self) -> list[int]:
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in pids if stat(pid)[3:4] == [str(self.pid)]]


@pytest.fixture
def console(field: Field) -> Generator[Console]:
    console = Console(field)
    yield console
    console.close()


def test_a_command_in_the_background_leaves_the_keys_to_the_shell(console: Console) -> None:
    console.run("sh", "-c", "cat > eaten", after="&")
    runner = eventually(lambda: console.field.record.session)
    # The shell sees a job that waits for the terminal, as with `cat &`.
    pid = int(runner.removeprefix("session-"))
    eventually(lambda: stat(pid)[0] == "T")
    console.type("echo typed > typed\n")
    console.await_content("typed", "typed\n")
    assert (console.field.folder / "eaten").read_text() == ""


def test_a_stopped_job_leaves_the_keys_to_the_shell_and_goes_on_in_the_foreground(
    console: Console,
) -> None:
    # Without other processes: while sh is in vfork, and its child stopped before exec, it does not
    # stop, under any shell.
    copying = 'while read -r line; do echo "$line" > copied; done; echo copied > done'
    console.run("sh", "-c", f"echo up-and-$((1 + 1)); {copying}")
    console.await_shown("up-and-2")
    console.type(CTRL_Z)
    console.await_shown("Stopped")
    console.type("echo typed > typed\n")
    console.await_content("typed", "typed\n")
    console.type("fg\nfor the command\n")
    console.await_content("copied", "for the command\n")
    console.type(CTRL_D)
    console.await_content("done", "copied\n")


def test_a_job_of_the_background_is_brought_to_the_foreground(console: Console) -> None:
    console.run(
        "sh", "-c", "echo up > up; until [ -e go ]; do sleep 0.01; done; cat > got", after="&"
    )
    console.await_content("up", "up\n")
    console.type("fg\n")
    console.await_shown("go ]; do")
    (console.field.folder / "go").touch()
    console.type(f"a line\n{CTRL_D}")
    console.await_content("got", "a line\n")


def test_ctrl_c_is_the_commands(console: Console) -> None:
    script = "trap 'exit 9' INT; echo up > up; while :; do sleep 0.01; done"
    console.run("sh", "-c", script, after='; echo "status $?" > status')
    console.await_content("up", "up\n")
    console.type(CTRL_C)
    console.await_content("status", "status 9\n")


def test_ctrl_c_ends_a_runner_that_waits(console: Console) -> None:
    first = console.field.start("sleep", "1000", timeout=LONG)
    eventually(lambda: console.field.record.session)
    console.run("true", after='; echo "status $?" > status')
    console.await_shown("waiting to lead")
    console.type(CTRL_C)
    console.await_content("status", "status 130\n")
    first.send(signal.SIGTERM)


def test_a_new_size_of_the_terminal_reaches_the_command(console: Console) -> None:
    console.run(console.field.program("sized", SIZED))
    console.field.await_notes("up")
    console.resize(17)
    console.field.await_notes("told")


@pytest.mark.parametrize("runner", ["tiny_runner.py", "tiny_share_runner.py"])
def test_a_command_asks_at_the_terminal_that_controls_it(console: Console, runner: str) -> None:
    shares = ShareField(console.field.folder)
    shares.give(1, "a")
    console.run("sh", "-c", "head -1 < /dev/tty > answer", runner=runner)
    console.type("the password\n")
    console.await_content("answer", "the password\n")


def test_the_terminal_of_a_pipeline_is_not_taken(console: Console) -> None:
    console.run("sh", "-c", "cat; echo no terminal < /dev/tty || echo end", after="| cat > got")
    console.await_content("got", "end\n")


def test_a_script_shares_its_terminal_with_a_command(console: Console) -> None:
    (console.field.folder / "script").write_text('"$@"\necho "$?" > status\n')
    words = [sys.executable, HERE / "tiny_runner.py", console.field.folder, LONG, "--"]
    line = shlex.join([*map(str, words), "sh", "-c", "echo up > up; read line; exit 3"])
    console.type(f"sh script {line}\n")
    console.await_content("up", "up\n")
    console.type(CTRL_Z)
    console.await_shown("Stopped")
    console.type("fg\nx\n")
    console.await_content("status", "3\n")


def test_a_terminal_that_a_lost_command_has_changed_is_restored(console: Console) -> None:
    console.run(console.field.program("silent", SILENT))
    console.field.await_notes("up")
    assert not console.shows_keys()
    console.field.depose()
    console.field.await_notes("up", 2)
    assert console.shows_keys()
