"""The command line as the tests call it: in this process, or in processes of their own."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from kip30.cli.program import program
from kip30_conformance.polling import is_readable, time_scale

PATIENCE_SECONDS = 20
_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
sys.argv = ["kip30", *sys.argv[2:]]
from kip30_command import main
main()
"""
SESSION_SECONDS = 2


class Shell:
    """Calls ``kip30`` with a store of the test's own, configured by the file *properties*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = folder / "kip30.properties"
        self.configure()

    def configure(self, **settings: object) -> None:
        """Write the properties file, with *settings* whose ``_`` stand for dots."""
        self.write(
            {
                "plugin.backend": "embedded",
                "plugin.embedded.directory": self.folder / "store",
                "plugin.session.timeout.ms": round(SESSION_SECONDS * time_scale() * 1000),
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )

    def write(self, settings: Mapping[str, object]) -> None:
        self.properties.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))

    def __call__(self, *words: str | bytes, stdin: bytes = b"") -> Result:
        """Run a command in this process."""
        arguments = [os.fsdecode(word) for word in words]
        return CliRunner().invoke(program, arguments, prog_name="kip30", input=stdin)

    def json(self, *words: str) -> list[Any]:
        """Run a command that succeeds and return the JSON of its lines."""
        result = self(*words, "--json")
        assert result.exit_code == 0, result.stderr
        return self.json_of(result.stdout)

    def json_of(self, printed: str) -> list[Any]:
        """Return the JSON of the lines of *printed*."""
        return [json.loads(line) for line in printed.splitlines()]

    @contextmanager
    def locked_store(self) -> Iterator[None]:
        """Lock the database, as a write that never ends does."""
        self("kv", "list")
        with closing(sqlite3.connect(self.folder / "store" / "kip30.db")) as database:
            database.execute("BEGIN EXCLUSIVE")
            yield

    def start(self, *words: str, **more: Any) -> "subprocess.Popen[bytes]":
        """Start a command in a process of its own, or *program*, the words of another one."""
        program = more.pop("program", ("-m", "kip30"))
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
        return subprocess.Popen([sys.executable, *program, *words], **{**pipes, **more})

    def finish(self, *words: str, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run a command in a process of its own to its end."""
        with ended(self.start(*words, **more)) as process:
            out, err = process.communicate(timeout=PATIENCE_SECONDS * time_scale())
        return subprocess.CompletedProcess(words, process.returncode, out, err)


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Kill *process* at the end if it is still there."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def eventually(happens: Callable[[], bool]) -> None:
    """Wait until something happens, and fail if it does not."""
    until = time.monotonic() + PATIENCE_SECONDS * time_scale()
    while not happens():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def line_of(stream: Any) -> str:
    """Return the next line of a process's output, and fail if there is none in time."""
    assert is_readable(stream.fileno(), PATIENCE_SECONDS * time_scale()), "no line in time"
    line: bytes = stream.readline()
    return line.decode().rstrip("\n")


def without(modules: str, *words: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a command where none of *modules*, which commas separate, is installed."""
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT, modules, *words],
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS * time_scale(),
        env=environment,
    )
