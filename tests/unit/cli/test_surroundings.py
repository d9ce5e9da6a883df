"""Closed streams, no home directory, missing packages: errors, and no mistakes of kip30."""

import os
import subprocess
import sys

import pytest

from kip30.cli._exit_codes import Status
from kip30.config.extras import how_to_install
from kip30.errors import ConfigError
from kip30_backends.embedded.settings import default_directory
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, without

NOT_IN_PASSWD = 12_345


def redirected(shell: Shell, words: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of the shell in which ``kip30`` is the program."""
    return subprocess.run(
        ["sh", "-c", words.replace("kip30", f"{sys.executable} -m kip30")],
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS * time_scale(),
        cwd=shell.folder,
    )


@pytest.mark.parametrize("words", ["kv list", "leader s", "config --effective", "backends"])
def test_a_closed_stdin_changes_nothing(shell: Shell, words: str) -> None:
    closed = redirected(shell, f"kip30 {words} <&-")
    opened = redirected(shell, f"kip30 {words} </dev/null")
    assert (closed.returncode, closed.stdout) == (opened.returncode, opened.stdout)
    assert closed.stderr == opened.stderr


def test_a_closed_stdin_has_no_value(shell: Shell) -> None:
    result = redirected(shell, "kip30 kv put n/k - <&-")
    assert result.returncode == Status.USAGE
    assert b"standard input, which is closed" in result.stderr
    assert shell("kv", "get", "n/k").exit_code == Status.REFUSED


def test_a_closed_stdin_has_no_keys_to_import(shell: Shell) -> None:
    result = redirected(shell, "kip30 kv import <&-")
    assert result.returncode == Status.USAGE
    assert b"standard input, which is closed" in result.stderr


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_a_closed_stdin_confirms_nothing(shell: Shell, closed: str) -> None:
    shell("kv", "put", "n/k", "")
    result = redirected(shell, f"kip30 kv delete -r n {closed}")
    assert result.returncode == Status.USAGE
    assert (b"needs --yes" in result.stderr) == ("2>" not in closed)
    assert shell("kv", "list", "n").stdout == "n/k\n"


@pytest.mark.parametrize("words", ["config", "kv list n", "--version"])
def test_a_closed_stdout_is_an_error_of_the_system(shell: Shell, words: str) -> None:
    shell("kv", "put", "n/k", "")
    result = redirected(shell, f"kip30 {words} >&-")
    assert result.returncode == Status.SYSTEM
    assert result.stderr == b"kip30: Bad file descriptor\n"


def test_a_closed_stdout_does_not_become_the_database(shell: Shell) -> None:
    for number in range(3):
        redirected(shell, f"kip30 kv put n/{number} x >&- 2>&- <&-")
    assert shell("kv", "list", "n").stdout == "n/0\nn/1\nn/2\n"
    assert redirected(shell, "kip30 kv delete n/0 >&-").returncode == Status.OK


def test_a_closed_stderr_loses_only_the_messages(shell: Shell) -> None:
    result = redirected(shell, "kip30 kv get n/k 2>&-")
    assert (result.returncode, result.stdout) == (Status.REFUSED, b"")


def test_a_command_inherits_no_connection_as_its_stdin(shell: Shell) -> None:
    look = "readlink /proc/self/fd/0; readlink /proc/self/fd/1 >&2"
    result = redirected(shell, f"kip30 run --service s --quiet -- sh -c '{look}' <&-")
    assert (result.returncode, result.stdout) == (0, b"/dev/null\n")


# -- no home directory


def homeless(shell: Shell, *words: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a command as a user that has neither an entry in passwd nor a HOME."""

    def lose_name() -> None:
        os.setresuid(NOT_IN_PASSWD, 0, 0)  # only root's effective id may read root's Python

    return subprocess.run(
        [sys.executable, "-m", "kip30", *words],
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS * time_scale(),
        cwd=shell.folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        preexec_fn=lose_name,
    )


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user id")


@needs_root
@pytest.mark.parametrize(
    "words", [("kv", "list"), ("config", "--effective"), ("doctor",), ("leader", "s")]
)
def test_without_a_home_the_error_names_what_to_set(shell: Shell, words: tuple[str, ...]) -> None:
    shell.properties.unlink()
    result = homeless(shell, *words, "--backend", "embedded")
    assert result.returncode == Status.USAGE
    told = result.stderr.decode()
    assert "user 12345 has no home directory: set plugin.embedded.directory" in told
    assert "XDG_STATE_HOME" in told
    assert told.count("\n") == 1


@needs_root
def test_without_a_home_a_state_directory_is_enough(shell: Shell) -> None:
    shell.properties.unlink()
    words = ("kv", "list", "--backend", "embedded")
    result = homeless(shell, *words, XDG_STATE_HOME=str(shell.folder))
    assert (result.returncode, result.stderr) == (Status.OK, b"")
    assert sorted(path.name for path in shell.folder.iterdir()) == ["kip30"]


def test_the_default_directory_needs_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)  # a user that no database has
    with pytest.raises(ConfigError, match="has no home directory"):
        default_directory()


# -- what is not installed, and what is refused


@pytest.mark.parametrize("module", ["pytest", "pytest_timeout", "hypothesis", "psutil"])
@pytest.mark.parametrize("words", [("conform",)], ids=" ".join)
@pytest.mark.usefixtures("shell")
def test_without_its_extra_the_suite_names_it(module: str, words: tuple[str, ...]) -> None:
    result = without(module, *words)
    assert result.returncode == Status.USAGE
    assert f"needs {module}; {how_to_install('conformance')}" in result.stderr.decode()


@pytest.mark.parametrize("words", [("storm", "nonsense"), ("up", "etcd")], ids=" ".join)
@pytest.mark.usefixtures("shell")
def test_without_its_extra_a_command_of_servers_names_it(words: tuple[str, ...]) -> None:
    result = without("psutil", "servers", *words)
    assert result.returncode == Status.USAGE
    assert f"needs psutil; {how_to_install('conformance')}" in result.stderr.decode()


def test_a_storm_that_is_refused_leaves_nothing(shell: Shell) -> None:
    for words in (("nonsense",), ("etcd", "--nodes", "2")):
        assert shell("servers", "storm", *words).exit_code == Status.USAGE
    assert not (shell.folder / "storm-report").exists()


def test_servers_are_installed_without_a_checkout(shell: Shell) -> None:
    """The recipes are in the wheel, from which these tests run."""
    result = redirected(shell, "kip30 servers install etdc")
    assert result.returncode == Status.USAGE
    assert b"etdc" in result.stderr
    assert b"etcd" in result.stderr
