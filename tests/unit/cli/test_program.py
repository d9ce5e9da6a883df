import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kip30 import __version__
from kip30.cli._exit_codes import Status
from kip30.cli._generate_docs import commands
from kip30.cli.program import COMMANDS, program
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, ended, eventually, line_of

SLOW_TO_IMPORT = ("asyncio", "javaproperties", "rich", "sqlite3", "stevedore")
LARGEST_FILE = 50_000_000  # above the files of a store
SPACE_LEFT = 100
TELL_IMPORTED = """
import sys
from kip30.cli.program import program
try:
    program.main(["--help"], prog_name="kip30")
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
TELL_HELP = """
import click
from kip30.cli._generate_docs import commands
from kip30.cli.program import program

print(program.get_help(click.Context(program)))
for path, command in commands(program, "kip30"):
    print(path, command.get_help(click.Context(command)))
"""


def test_help_is_printed_when_nothing_is_asked(shell: Shell) -> None:
    result = shell()
    assert result.exit_code == Status.OK
    assert result.stdout == shell("--help").stdout == shell("-h").stdout


def test_version(shell: Shell) -> None:
    assert shell("--version").stdout == f"kip30 {__version__}\n"


def test_help_imports_no_command_and_nothing_slow() -> None:
    told = subprocess.run(
        [sys.executable, "-c", TELL_IMPORTED], check=True, capture_output=True, text=True
    )
    imported = set(told.stderr.split())
    assert imported.isdisjoint(SLOW_TO_IMPORT)
    assert imported.isdisjoint(f"kip30.cli.{name}" for name in COMMANDS)


def test_help_is_the_same_where_python_drops_docstrings() -> None:
    usual, without = (
        subprocess.run(
            [sys.executable, *options, "-c", TELL_HELP], check=True, capture_output=True, text=True
        ).stdout
        for options in ((), ("-OO",))
    )
    assert "Run CMD while, and only while" in usual
    assert without == usual


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_list_shows_the_first_line_of_each_help_text(name: str) -> None:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    assert command.help is not None
    assert command.help.partition("\n")[0] == COMMANDS[name]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["leadr"], "no such command: leadr (did you mean leader?) — see `kip30 --help`"),
        (["--jason"], "--jason"),
        (["kv", "lst"], "no such command: lst (did you mean list?) — see `kip30 kv --help`"),
        (["qqq"], "no such command: qqq; there are run, coordinate, coordinate-status,"),
        (
            ["help", "qqq"],
            "no such command: qqq; there are run, coordinate, coordinate-status,",
        ),
        (["help", "leadr"], "no such command: leadr (did you mean leader?) — see `kip30 --help`"),
        (["help", "group", "jn"], "no such command: jn (did you mean join?) — see `kip30 group"),
        (
            ["help", "group", "qqq"],
            "no such command: qqq; there are admit, bans, evict, join, list and",
        ),
        (["help", "leader", "qqq"], "`kip30 leader` has no commands, so there is no 'qqq' — see"),
        (["config", "--check"], "requires an argument — see `kip30 config --help`"),
        (["group", "join", "g", "--id"], "requires an argument — see `kip30 group join --help`"),
        (["--config"], "requires an argument — see `kip30 --help`"),
        (["kv", "put", "a", "-1"], "write `--` before a value that begins with `-`"),
        (["run", "--wait", "x", "true"], "'x' is not a number of seconds, 0 or more"),
        (["completion"], "name a shell: bash, zsh or fish — see"),
        (["kv"], "Missing command — see `kip30 kv --help`"),
        (["kv", "get"], "Missing argument 'KEY' — see `kip30 kv get --help`"),
        (["kv", "get", "a", "--jason"], "— see `kip30 kv get --help`"),
        (["completion", "tcsh"], "— see `kip30 completion --help`"),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_mistake(
    shell: Shell, words: list[str], complaint: str
) -> None:
    result = shell(*words)
    assert result.exit_code == Status.USAGE
    assert complaint in result.stderr
    assert result.stderr.startswith("kip30: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_it_runs_as_a_module(shell: Shell) -> None:
    result = shell.finish("--version")
    assert (result.returncode, result.stdout.decode()) == (Status.OK, f"kip30 {__version__}\n")


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_evaluates(shell: Shell, shell_name: str) -> None:
    told = shell("completion", shell_name).stdout
    assert f"_KIP30_COMPLETE={shell_name}_complete" in told


def test_bash_completion_lists_the_matching_subcommands(shell: Shell) -> None:
    asked = {"_KIP30_COMPLETE": "bash_complete", "COMP_WORDS": "kip30 kv up", "COMP_CWORD": "2"}
    result = shell.finish(env={**os.environ, **asked})
    assert result.stdout == b"plain,update\n"


@pytest.mark.parametrize(
    "words",
    [
        ("kv", "list", "n"),
        (),
        ("--help",),
        ("-h",),
        ("--version",),
        ("help",),
        ("kv", "--help"),
        ("kv", "get", "--help"),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_had_enough_is_no_error(shell: Shell, words: tuple[str, ...]) -> None:
    for number in range(3):
        shell("kv", "put", f"n/{number}", "")
    reading, writing = os.pipe()
    os.close(reading)
    result = shell.finish(*words, stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (Status.OK, b"")


@pytest.mark.parametrize(
    "words",
    [
        ("config", "--diff", "one.properties", "other.properties"),
        ("leader", "vacant", "--json"),
        ("status",),
        ("status", "--json"),
        ("doctor", "--set", "plugin.embedded.directory=/dev/null/store"),
        ("doctor", "-o", "table", "--set", "plugin.embedded.directory=/dev/null/store"),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_gone_changes_no_exit_code(shell: Shell, words: tuple[str, ...]) -> None:
    for name, namespace in (("one", "a"), ("other", "b")):
        text = f"plugin.backend=embedded\nplugin.namespace={namespace}\n"
        (shell.folder / f"{name}.properties").write_text(text)
    shell("kv", "put", "kip30.directives/s", "no directives")
    expected = shell.finish(*words)
    assert expected.returncode not in {Status.OK, Status.INTERNAL}
    reading, writing = os.pipe()
    os.close(reading)
    result = shell.finish(*words, stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (expected.returncode, expected.stderr)


@pytest.mark.parametrize("form", ["table", "tsv", "json"])
def test_directives_are_given_though_the_reader_has_gone(shell: Shell, form: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = shell.finish("pause", "a", "b", "c", "-o", form, stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (Status.OK, b"")
    (found,) = shell.json("status")
    assert found["paused"] == ["a", "b", "c"]


def test_a_setting_without_a_value_shows_its_key_alone(shell: Shell) -> None:
    """What follows may be a password."""
    result = shell("kv", "list", "--set", "plugin.etcd.password hunter2")
    assert result.exit_code == Status.USAGE
    assert "'plugin.etcd.password' is not a setting: write KEY=VALUE" in result.stderr
    assert "hunter2" not in result.output


def test_data_is_utf8_whatever_the_locale(shell: Shell) -> None:
    shell("kv", "put", "n/鍵", "")
    result = shell.finish("kv", "list", "n", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert result.stdout.decode() == "n/鍵\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is made of /dev/full")
def test_a_full_disk_is_an_error(shell: Shell) -> None:
    with Path("/dev/full").open("wb") as full:
        result = shell.finish("backends", stdout=full)
    assert result.returncode == Status.SYSTEM
    assert result.stderr == b"kip30: No space left on device\n"


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", [(), ("--json",)], ids=["raw", "json"])
def test_a_disk_that_fills_up_in_a_value_is_an_error(
    shell: Shell, words: tuple[str, ...], unbuffered: str
) -> None:
    shell("kv", "put", "n/k", "-", stdin=b"x" * 200_000)
    out = shell.folder / "out"
    out.touch()
    os.truncate(out, LARGEST_FILE - SPACE_LEFT)
    with out.open("ab") as full:
        result = shell.finish(
            *("kv", "get", "n/k", *words),
            stdout=full,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            preexec_fn=limit_files,
        )
    assert out.stat().st_size == LARGEST_FILE
    assert result.returncode == Status.SYSTEM
    assert b"File too large" in result.stderr


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has set up a handler for a signal."""
    status = dict(
        line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return bool(int(status["SigCgt"], 16) >> (number - 1) & 1)


def test_a_signal_ends_what_waits_for_the_store(shell: Shell) -> None:
    with shell.locked_store(), ended(shell.start("doctor")) as doctor:
        eventually(lambda: catches(doctor.pid, signal.SIGTERM))
        doctor.terminate()
        out, err = doctor.communicate(timeout=PATIENCE_SECONDS * time_scale())
    assert (doctor.returncode, out, err) == (128 + signal.SIGTERM, b"", b"")


def test_the_end_by_a_signal_takes_the_session_along(shell: Shell) -> None:
    shell.configure(plugin_session_timeout_ms=600_000)
    with ended(shell.start("group", "join", "g", "--id", "m")) as member:
        with ended(shell.start("group", "watch", "g")) as watch:
            assert line_of(watch.stdout).startswith("+\tm")
            watch.terminate()
        member.terminate()
        member.wait(PATIENCE_SECONDS * time_scale())
    assert shell("group", "list", "g").stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("leader", "a\nb"),
        ("coordinate-status", "a\nb"),
        ("coordinate-delete", "a\nb"),
        ("kv", "get", "a\nb"),
        ("run", "--service", "a\nb", "--", "true"),
        ("coordinate", "--group", "a\nb", "--shards", "1", "--", "true"),
        ("kv", "get", "k", "--no\nne"),
        ("no\nne",),
        ("help", "no\nne"),
        ("config", "--check", "no\nne"),
    ],
    ids=lambda words: " ".join(words).encode("unicode_escape").decode(),
)
def test_each_line_of_messages_begins_with_the_program(
    shell: Shell, words: tuple[str, ...]
) -> None:
    lines = shell.finish(*words).stderr.decode().splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("kip30: ")] == []


def test_no_option_takes_an_empty_name_of_a_file() -> None:
    """It would mean the working directory, and is most often a variable that is not set."""
    parameters = [
        (f"{path} {one.opts[0]}", one)
        for path, command in commands(program, "kip30")
        for one in command.params
        if isinstance(one.type, click.Path | click.File)
    ]
    assert len(parameters) > 10
    for name, one in parameters:
        with pytest.raises(click.BadParameter, match="the name of the file is empty"):
            pytest.fail(f"{name}: {one.type.convert('', one, None)!r}")
