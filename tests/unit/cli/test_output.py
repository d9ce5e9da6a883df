"""One rule of output: tabs in a pipe, a table on a terminal, and the documented JSON."""

import fcntl
import json
import os
import struct
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from kip30 import PluginLocator
from kip30.cli import _completion_values
from kip30.cli._exit_codes import Status
from kip30.cli._generate_docs import commands
from kip30.cli._output import OUTPUT_OPTIONS
from kip30.cli._schema import ERROR, SCHEMA, Field
from kip30.cli.program import COMMANDS, program
from kip30.config import CommonSettings, Properties, build

from .shell import Shell, ended, line_of

NARROW = 60
TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
    "null": (type(None),),
}
LEADING = ("run", "--service", "s", "--id", "n1", "--quiet", "--", "sleep", "60")


def on_terminal(shell: Shell, columns: int, *words: str, **variables: str) -> list[str]:
    """Return the lines that a command prints on a terminal with that number of columns."""
    screen, terminal = os.openpty()
    environment = {**plain_environment(), **variables}
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with ended(shell.start(*words, stdout=terminal, env=environment)) as process:
        os.close(terminal)
        shown = b"".join(_read_all(screen))
        process.wait()
    os.close(screen)
    return shown.decode().replace("\r\n", "\n").splitlines()


def plain_environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    return {**kept, "TERM": "dumb", "NO_COLOR": "1"}


def _read_all(screen: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:  # how a terminal ends that no one has open
            return
        yield part


# -- lines and tables


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("config",), 4),
        (("config", "--effective"), 3),
        (("backends",), 5),
        (("doctor",), 4),
        (("kv", "list", "n"), 1),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_a_pipe_gets_tabs_and_no_titles(shell: Shell, words: tuple[str, ...], fields: int) -> None:
    shell("kv", "put", "n/k", "")
    lines = shell(*words).stdout.splitlines()
    assert lines
    assert {line.count("\t") for line in lines} == {fields - 1}
    assert not any(line.startswith(("SETTING", "STORE")) for line in lines)


@pytest.mark.parametrize("words", [("config",), ("config", "--effective"), ("backends",)])
def test_a_narrow_terminal_shows_names_whole_and_fits(shell: Shell, words: tuple[str, ...]) -> None:
    lines = on_terminal(shell, NARROW, *words)
    names = [line.split("\t")[0] for line in shell(*words).stdout.splitlines()]
    assert [line.rstrip() for line in lines if line and not line.startswith(" ")] == names
    too_long = [line for line in lines if len(line) > NARROW and len(line.split()) > 2]
    assert too_long == []


def test_a_wide_terminal_shows_a_table(shell: Shell) -> None:
    title, *rows = on_terminal(shell, 200, "config", "--effective")
    assert title.split() == ["SETTING", "VALUE", "FROM"]
    column = title.index("VALUE")
    assert all(row[column - 1] == " " for row in rows)
    assert any(row.startswith("plugin.backend ") for row in rows)


def test_a_width_of_zero_that_a_variable_gives_is_none(shell: Shell) -> None:
    shown = on_terminal(shell, 200, "backends", COLUMNS="0")
    assert shown == on_terminal(shell, 200, "backends")
    assert any(line.startswith("embedded ") for line in shown)


def test_a_member_in_a_table_cannot_steer_the_terminal(shell: Shell) -> None:
    with ended(shell.start("group", "join", "g", "--id", "m", "--data", "\x1b[2J")) as member:
        with ended(shell.start("group", "watch", "g")) as watch:
            assert line_of(watch.stdout) == "+\tm\t\\x1b[2J"
            shown = on_terminal(shell, NARROW, "group", "list", "g")
            watch.terminate()
        member.terminate()
    assert [line.split() for line in shown] == [["MEMBER", "DATA"], ["m", "\\x1b[2J"]]


# -- JSON


def expect_fields(record: Mapping[str, Any], fields: tuple[Field, ...]) -> None:
    """Require *record* to have exactly *fields*, of their types."""
    assert {name.removesuffix("_base64") for name in record} == {one.name for one in fields}
    for one in fields:
        value = record[one.name]
        names = one.type.replace(" or ", ", ").split(", ")
        assert type(value) in {kind for name in names for kind in TYPES[name]}, (one, value)


ANSWERS: Mapping[str, tuple[str, ...]] = {
    "group list": ("group", "list", "g"),
    "kv get": ("kv", "get", "n/k"),
    "kv put": ("kv", "put", "n/new", "x"),
    "kv set": ("kv", "set", "n/k", "x"),
    "kv update": ("kv", "update", "n/k", "x"),
    "kv delete": ("kv", "delete", "n/k"),
    "kv delete --recursive": ("kv", "delete", "n", "--recursive", "--yes"),
    "kv list": ("kv", "list", "n"),
    "kv tree": ("kv", "tree", "n"),
    "kv tree --values": ("kv", "tree", "n", "--values"),
    "kv import": ("kv", "import", os.devnull),
    "kv sweep": ("kv", "sweep"),
    "backends": ("backends",),
    "config": ("config",),
    "config --effective": ("config", "--effective"),
    "config --check": ("config", "--check", "kip30.properties"),
    "doctor": ("doctor",),
    "doctor --each-server": ("doctor", "-e"),
    "prune": ("prune", "--unused", "30d", "--dry-run"),
}
WATCHES: Mapping[str, tuple[str, ...]] = {
    "coordinate-status": ("coordinate-status", "g", "--watch"),
    "leader": ("leader", "s", "--watch"),
    "group watch": ("group", "watch", "g"),
    "kv watch": ("kv", "watch", "n/k"),
    "kv watch --keys": ("kv", "watch", "n", "--keys"),
}


@pytest.mark.parametrize("command", ANSWERS)
def test_an_answer_has_the_documented_fields(shell: Shell, command: str) -> None:
    shell("kv", "put", "n/k", "x")
    records = shell.json(*ANSWERS[command])
    assert records
    for record in records:
        expect_fields(record, SCHEMA[command])


@pytest.mark.parametrize("command", WATCHES)
def test_a_watch_has_the_documented_fields(shell: Shell, command: str) -> None:
    shell("kv", "put", "n/k", "x")
    with (
        ended(shell.start("group", "join", "g", "--id", "m")) as member,
        ended(shell.start(*LEADING)) as runner,
        ended(shell.start(*WATCHES[command], "--json")) as watch,
    ):
        expect_fields(json.loads(line_of(watch.stdout)), SCHEMA[command])
        for process in (watch, runner, member):
            process.terminate()


def test_every_command_with_json_is_documented() -> None:
    checked = {
        *ANSWERS,
        *WATCHES,
        "config --ddl",
        "config --diff",
        "leader --all",
        "pause",
        "resume",
        "step-down",
        "hand-over",
        "group evict",
        "group admit",
        "group bans",
        "terms",
        "terms --directives",
        "status",
        "services",
        "groups",
    }
    with_spark = {name for name in SCHEMA if name.startswith("pipeline ")}  # in tests/pipeline
    assert checked | with_spark == set(SCHEMA)
    documented = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    assert all(f"`kip30 {command} --json`" in documented for command in SCHEMA)


def test_no_command_with_json_was_forgotten() -> None:
    options = {
        path.removeprefix("kip30 "): {one.name for one in command.params} & OUTPUT_OPTIONS
        for path, command in commands(program, "kip30")
    }
    offering = {command for command, names in options.items() if names}
    assert offering == {command.partition(" --")[0] for command in SCHEMA}
    assert all(options[command] == OUTPUT_OPTIONS for command in offering)


def test_numbers_are_numbers(shell: Shell) -> None:
    rows = {row["key"]: row["value"] for row in shell.json("config", "--effective")}
    assert rows["plugin.connect.timeout.ms"] == 10_000
    assert rows["plugin.locator.classname"] is None
    reference = {row["key"]: row["default"] for row in shell.json("config")}
    assert reference["plugin.embedded.poll.ms"] == 50


@pytest.mark.parametrize(
    ("words", "kind", "type_", "status"),
    [
        (("kv", "get", "n/none"), "refused", "KeyMissingError", Status.REFUSED),
        (("kv", "get", "a/b/c/"), "usage", "InvalidNameError", Status.USAGE),
        (("kv", "get", "n/k", "--set", "plugin.x=1"), "usage", "ConfigError", Status.USAGE),
        (("kv", "get", "n/k", "--jason"), "usage", "NoSuchOption", Status.USAGE),
        (("kv", "put", "n/k", "x", "--fence", "y"), "usage", "BadParameter", Status.USAGE),
        (("--set", "bad", "kv", "get", "n/k"), "usage", "BadParameter", Status.USAGE),
        (("--nonsense", "doctor"), "usage", "NoSuchOption", Status.USAGE),
        (("kv", "gett", "n/k"), "usage", "UsageError", Status.USAGE),
        (("kvv", "get", "n/k"), "usage", "UsageError", Status.USAGE),
        (("kv", "--nonsense", "get", "n/k"), "usage", "NoSuchOption", Status.USAGE),
    ],
)
def test_an_error_is_an_object_on_stderr(
    shell: Shell, words: tuple[str, ...], kind: str, type_: str, status: Status
) -> None:
    result = shell.finish(*words, "--json")
    assert (result.returncode, result.stdout) == (status, b"")
    (line,) = result.stderr.decode().splitlines()
    error = json.loads(line)["error"]
    expect_fields(error, ERROR)
    assert (error["kind"], error["type"], error["exit"]) == (kind, type_, status)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--service", "s", "--nonsense", "cmd", "--json"),
        ("--set", "bad", "run", "--service", "s", "cmd", "--json"),
        ("kv", "gett", "--", "--json"),
    ],
    ids=" ".join,
)
def test_a_word_that_is_no_option_asks_for_no_json(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.finish(*words)
    assert result.returncode == Status.USAGE
    assert result.stderr.startswith(b"kip30: ")


# -- help and completion


def completed(shell: Shell, line: str, **more: Any) -> list[str]:
    """Return what bash is offered at the end of *line*."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    environment = {**os.environ, "_KIP30_COMPLETE": "bash_complete", **words}
    result = shell.finish(env=environment, **more)
    assert result.stderr == b""
    return [one.partition(",")[2] for one in result.stdout.decode().splitlines() if one]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kip30 kv get n/", ["n/a", "n/b"]),
        ("kip30 kv get n/b", ["n/b"]),
        ("kip30 kv get to", ["top"]),
        ("kip30 coordinate --group g --items-key to", ["top"]),
        ("kip30 --backend emb", ["embedded"]),
        ("kip30 kv list --backend emb", ["embedded"]),
        ("kip30 --set plugin.embedded.p", ["plugin.embedded.poll.ms="]),
        ("kip30 --set plugin.na", ["plugin.namespace="]),
        ("kip30 --set plugin.namespace=other kv get n/", []),
        ("kip30 help ba", ["backends"]),
        ("kip30 help kv wa", ["watch"]),
    ],
)
def test_the_shell_is_offered_what_there_is(shell: Shell, line: str, offered: list[str]) -> None:
    for key in ("n/a", "n/b", "top"):
        shell("kv", "put", key, "")
    assert completed(shell, line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kip30 kv set k - --fe", "--fence"),
        ("kip30 kv put k - --gu", "--guard"),
        ("kip30 kv update k - --ver", "--version"),
        ("kip30 group join g --data - --i", "--id"),
    ],
)
def test_completion_does_not_read_the_terminal(shell: Shell, line: str, offered: str) -> None:
    reading, writing = os.pipe()  # as a terminal without another line
    os.write(writing, b"typed")
    assert completed(shell, line, stdin=reading) == [offered]
    assert os.read(reading, 10) == b"typed"
    os.close(writing)
    os.close(reading)


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ({}, (1.0, 1.0)),
        ({"connect": 30_000, "operation": 20_000, "session": 60_000}, (1.0, 1.0)),
        ({"connect": 300, "operation": 200, "session": 500}, (0.3, 0.2)),
    ],
    ids=["default", "longer", "shorter"],
)
def test_the_shell_waits_a_second_for_the_store(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    written: dict[str, int],
    used: tuple[float, float],
) -> None:
    shell.write(
        {"plugin.backend": "embedded"}
        | {f"plugin.{name}.timeout.ms": value for name, value in written.items()}
    )
    opened = list[CommonSettings]()

    def startup(_locator: PluginLocator, given: Properties) -> None:
        opened.append(build(CommonSettings, given))

    monkeypatch.setattr(PluginLocator, "startup", startup)
    context = click.Context(program)
    context.params = {"file": shell.properties}
    assert _completion_values.keys(context, click.Argument(["key"]), "n/") == []
    (settings,) = opened
    assert (settings.connect_timeout_seconds, settings.operation_timeout_seconds) == used


def test_completion_reads_no_pipe(shell: Shell) -> None:
    """Its writer writes for the command that is being typed."""
    reading, writing = os.pipe()
    os.write(writing, b"plugin.backend = embedded")
    os.close(writing)
    line = f"kip30 --config /dev/fd/{reading} kv get n/"
    assert completed(shell, line, pass_fds=[reading]) == []
    assert os.read(reading, 100) == b"plugin.backend = embedded"
    os.close(reading)


def test_where_nothing_is_known_nothing_is_offered(shell: Shell) -> None:
    shell.write({"plugin.backend": "nonsense"})
    assert completed(shell, "kip30 kv get n/") == []


def test_settings_of_a_store_that_is_begun_are_offered(shell: Shell) -> None:
    shell.write({"plugin.backend": "etcd", "plugin.namespace": "n"})
    assert "plugin.embedded.notify=" in completed(shell, "kip30 --set plugin.embedded.n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_prints_what_the_option_prints(shell: Shell, name: str) -> None:
    assert shell("help", name).stdout == shell(name, "--help").stdout != ""


def test_help_goes_into_groups(shell: Shell) -> None:
    assert shell("help", "kv", "put").stdout == shell("kv", "put", "--help").stdout
    assert shell("help").stdout == shell("--help").stdout
    result = shell("help", "leadr")
    assert result.exit_code == Status.USAGE
    assert "no such command: leadr (did you mean leader?)" in result.stderr
    assert shell("help", "kv", "nope").exit_code == Status.USAGE
    assert program.name == "program"
