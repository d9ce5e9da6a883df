"""A command that stays ends when its store was removed or replaced, by one rule for all."""

import re
import shutil
import subprocess
from collections.abc import Mapping

import pytest

from kip30.cli._exit_codes import Status
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, ended, eventually

SLEEPER = ("--", "sh", "-c", "echo started; exec sleep 1000")
WATCHES: Mapping[str, tuple[str, ...]] = {
    "kv watch": ("kv", "watch", "n/k"),
    "kv watch --keys": ("kv", "watch", "n", "--keys"),
    "leader --watch": ("leader", "s", "--watch"),
    "group watch": ("group", "watch", "others"),
    "coordinate-status --watch": ("coordinate-status", "g", "--watch"),
    "group join": ("group", "join", "others", "--id", "m"),
}
RUNNERS: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "--service", "s", *SLEEPER),
    "coordinate": ("coordinate", "--group", "g", "--shards", "1", *SLEEPER),
    "coordinate --each": ("coordinate", "--group", "g", "--shards", "1", "--each", *SLEEPER),
}


def sessions(shell: Shell) -> int:
    """Return how many sessions there are in the store."""
    folder = shell.folder / "store" / "sessions"
    return len(list(folder.glob("*.lock"))) if folder.exists() else 0


def remove_store(shell: Shell) -> None:
    """Remove all files of the store at once: a process that finds some says something else."""
    shutil.rmtree((shell.folder / "store").rename(shell.folder / "removed"))


def expect_end(
    shell: Shell, words: tuple[str, ...], begun: str, *, sessions_before: int = 0
) -> None:
    """Require that a command, once it has printed *begun*, ends when its store is recreated."""
    out = shell.folder / "out"
    with out.open("wb") as file, ended(shell.start(*words, stdout=file, stderr=file)) as process:
        eventually(lambda: begun in out.read_text() and sessions(shell) >= sessions_before)
        remove_store(shell)
        shell("kv", "put", "n/k", "y")
        status = process.wait(PATIENCE_SECONDS * time_scale())
    last = out.read_text().splitlines()[-1]
    assert (status, last[:7]) == (Status.UNAVAILABLE, "kip30: ")
    assert re.search("was replaced or removed while it was open|cannot be used", last)


@pytest.mark.parametrize("command", WATCHES)
def test_a_command_that_stays_ends_when_its_store_is_removed(shell: Shell, command: str) -> None:
    shell("kv", "put", "n/k", "x")
    with ended(shell.start("group", "join", "others", "--id", "m1")) as member:
        begun = {"group join": "joined", "group watch": "+", "kv watch --keys": "+"}
        expect_end(
            shell, WATCHES[command], begun.get(command, "x" if command == "kv watch" else "-")
        )
        member.terminate()


@pytest.mark.parametrize("command", RUNNERS)
def test_a_runner_ends_when_its_store_is_removed(shell: Shell, command: str) -> None:
    expect_end(shell, RUNNERS[command], "started")


@pytest.mark.parametrize("command", RUNNERS)
def test_a_runner_that_waits_ends_when_its_store_is_removed(shell: Shell, command: str) -> None:
    with ended(shell.start(*RUNNERS[command], stdout=subprocess.DEVNULL)) as first:
        eventually(lambda: sessions(shell) == 1)
        expect_end(shell, RUNNERS[command], "waiting", sessions_before=2)
        first.terminate()


def test_a_member_of_a_group_with_a_damaged_state_ends(shell: Shell) -> None:
    shell("kv", "set", "kip30.group/g/state", "garbage")
    result = shell.finish(*RUNNERS["coordinate"])
    assert (result.returncode, result.stdout) == (Status.UNAVAILABLE, b"")
    assert b"the record of a group state is damaged" in result.stderr
    assert shell("coordinate-status", "g").exit_code == Status.UNAVAILABLE
