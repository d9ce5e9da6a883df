"""Every command and every example of the documents runs, or says why it does not."""

import contextlib
import doctest
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kip30.config import load
from kip30_conformance.polling import time_scale

from .snippets import Snippet, snippets, transcript

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = [snippet for document in DOCUMENTS for snippet in snippets(document)]
RUN = [one for one in SNIPPETS if one.verb == "run"]
PROPERTIES = [one for one in SNIPPETS if one.language == "properties"]
SECONDS = 60


def _name(snippet: Snippet) -> str:
    return snippet.where


def test_each_snippet_is_run_or_has_a_reason_for_not_running() -> None:
    silent = [
        one.where
        for one in SNIPPETS
        if not one.verb and one.language != "properties" and ">>>" not in one.text
    ]
    assert silent == []
    assert [one.where for one in SNIPPETS if one.verb == "not run" and not one.rest] == []
    assert len(RUN) > 10


@pytest.mark.parametrize("snippet", RUN, ids=_name)
def test_commands_run(snippet: Snippet, tmp_path: Path) -> None:
    (tmp_path / "snippet").write_text(snippet.text)
    if snippet.text.startswith("$ "):
        _run_transcript(snippet, tmp_path)
    elif "snippet" in snippet.rest:
        _shell(tmp_path, snippet.rest)
    else:
        _shell(tmp_path, f"{snippet.rest}\n{snippet.text}")


@pytest.mark.parametrize("snippet", PROPERTIES, ids=_name)
def test_properties_are_settings(snippet: Snippet, tmp_path: Path) -> None:
    file = tmp_path / "kip30.properties"
    file.write_text(snippet.text)
    reference = (ROOT / "docs" / "configuration.md").read_text()
    keys = set(re.findall(r"^\* `([^`]+)` \(", reference, re.MULTILINE))
    assert set(load(file)) <= keys


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KIP30_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(document), module_relative=False)
    assert results.failed == 0
    assert results.attempted == document.read_text().count("\n>>> ")


def _run_transcript(snippet: Snippet, folder: Path) -> None:
    commands = transcript(snippet.text)
    # Each command finds the status of the one before it in $?.
    marked = [f"(exit $last); {command}; last=$?; printf '\\0'" for command, _ in commands]
    lines = [snippet.rest, "exec 2>&1", "set +e", "last=0", *marked]
    output = _shell(folder, "\n".join(lines))
    shown = output.split("\0")[:-1]
    assert [text.strip() for text in shown] == [expected.strip() for _, expected in commands]


def _shell(folder: Path, commands: str) -> str:
    """Run *commands* in *folder*, with a store of its own; return what they print."""
    configuration = folder / "embedded.properties"
    configuration.write_text(
        f"plugin.backend = embedded\nplugin.embedded.directory = {folder / 'state'}\n"
    )
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KIP30_CONFIG": str(configuration),
        "HOME": str(folder),
    }
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = shell.communicate(timeout=SECONDS * time_scale())
    finally:  # what it has started in the background would stay for ever
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    assert shell.returncode == 0, f"{output}\n{errors}"
    return output
