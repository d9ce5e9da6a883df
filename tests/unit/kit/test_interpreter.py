"""The Python that helpers are started with, also where `sys.executable` is another program."""

import subprocess
import sys
from pathlib import Path

import pytest

from kip30 import PluginLocator
from kip30.driver.kit.interpreter import interpreter
from kip30.errors import UnsupportedError
from kip30.runner import guard_handle
from kip30.scanning import scanner


def test_the_interpreter_is_the_running_python() -> None:
    assert interpreter() == sys.executable


@pytest.mark.parametrize("program", ["/usr/bin/uwsgi", ""])
def test_a_program_that_embeds_python_starts_that_of_its_library(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    found = subprocess.check_output([interpreter(), "-I", "-S", "-c", "print(1)"])
    assert found == b"1\n"


def test_there_may_be_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
    with pytest.raises(UnsupportedError, match="/usr/bin/uwsgi"):
        interpreter()


@pytest.mark.medium
def test_a_frozen_program_never_starts_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    program = tmp_path / "python-app"
    program.write_text(f"#!/bin/sh\necho >> {started}\n")
    program.chmod(0o700)
    config = {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path / "store")}
    with PluginLocator().startup(config) as locator:
        locator.storage().set("a/b", "1")
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        with pytest.raises(UnsupportedError, match="frozen"), scanner(config) as opened:
            opened.position()
        with pytest.raises(UnsupportedError, match="frozen"):
            guard_handle.require_guard()
    assert not started.exists()
