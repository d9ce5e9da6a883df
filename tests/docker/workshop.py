"""A folder of recipes made of real local commands, a cache, and the program that is tested."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kip30_conformance.polling import time_scale

PROGRAM = Path(__file__).parents[2] / "docker" / "install-servers"
PATIENCE = 20

# Notes its process id, waits for the gate, and makes something that the next step looks for.
MAKE = 'echo $$ >> "$DIARY"; echo half > half; cat "$GATE"; mkdir bin; echo whole > bin/server'


def eventually(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE * time_scale()
    while not is_so():
        assert time.monotonic() < end, f"not within {PATIENCE * time_scale():g} s: {is_so}"
        time.sleep(0.002)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Workshop:
    def __init__(self, folder: Path) -> None:
        self.recipes = folder / "recipes"
        self.cache = folder / "cache" / "kip30-servers"
        self.gate = folder / "gate"
        self._diary = folder / "diary"
        self._diary.touch()
        self.gate.touch()

    def write_recipe(self, name: str, *commands: str, needs: str = "sh") -> None:
        folder = self.recipes / name
        folder.mkdir(parents=True)
        (folder / "pin").write_text("version 1.2\n")
        (folder / "recipe.toml").write_text(
            f"""
            files = ["pin"]
            make = {json.dumps([["sh", "-ec", command] for command in commands or [MAKE]])}
            start = ["{{folder}}/bin/server", "--quiet"]
            version = {{ file = "pin", pattern = 'version (\\S+)' }}
            needs = {{ {needs} = "the package of {needs}" }}
            environment = {{ DIARY = "{self._diary}", GATE = "{self.gate}" }}
            """
        )

    def close_gate(self) -> None:
        """Let those who make something wait until `open_gate`."""
        self.gate.unlink()
        os.mkfifo(self.gate)

    def open_gate(self) -> None:
        os.close(os.open(self.gate, os.O_WRONLY))

    def made_by(self) -> list[int]:
        return [int(line) for line in self._diary.read_text().splitlines()]

    def folder(self, name: str) -> Path:
        return self.cache / f"{name}-1.2"

    def install(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(words),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE * time_scale(),
            check=False,
        )

    @contextmanager
    def installing(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            self._command(words),
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, str(PROGRAM), "--recipes", str(self.recipes), *words]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KIP30_SERVERS": "", "XDG_CACHE_HOME": str(self.cache.parent)}


def await_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr
    assert any(text in line for line in process.stderr), f"ended without {text!r}"
