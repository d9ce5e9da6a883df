"""The generated parts of the documentation: ``python -m kip30.cli._generate_docs docs/*.md``.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; the prose around it is
written by hand. Sentences are list items, because the cells of a table hold short phrases only.
"""

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import click

from kip30.cli import config
from kip30.cli._exit_codes import Status
from kip30.cli._output import OUTPUT_OPTIONS
from kip30.cli._schema import ERROR, SCHEMA, Field
from kip30.cli._store_options import STORE_OPTIONS
from kip30.cli.program import program
from kip30.config import CommonSettings, SettingRow, reference
from kip30.errors import ConfigError
from kip30.runtime.backend_registry import find

_WIDTH = 120
"""The longest line of the documentation; `tests/test_documents.py` holds it."""
_FIELD_TITLES = ("Field", "Type", "Meaning")
_SHARED = {"[of the output](#output)": OUTPUT_OPTIONS, "[of the store](#the-store)": STORE_OPTIONS}
"""Options that many commands have, by the place that lists them."""
_PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(document: str) -> str:
    """Return *document* with its generated parts regenerated.

    The settings of a store that is not installed stay as they are.
    """
    return _PART.sub(_made_anew, document)


def _made_anew(part: re.Match[str]) -> str:
    try:
        return f"{part[1]}{_generated(part[2])}{part[3]}"
    except ConfigError:
        return part[0]


def _generated(name: str) -> str:
    if name == "commands":
        return "".join(_section(command, path) for path, command in commands(program, "kip30"))
    if name == "exit codes":
        return "".join(_item(str(one.value), one.meaning) for one in Status)
    if name == "json":
        return "".join(
            _objects([command for command, _ in same], fields)
            for fields, same in groupby(SCHEMA.items(), itemgetter(1))
        )
    if name == "json errors":
        return _table(_FIELD_TITLES, ERROR)
    return _settings(name.removeprefix("settings of "))


def _objects(commands: Iterable[str], fields: Iterable[Field]) -> str:
    """Return what commands print that have the same fields."""
    names = ", ".join(f"`kip30 {command} --json`" for command in commands)
    return f"{_wrapped(names)}\n\n{_table(_FIELD_TITLES, fields)}\n"


def _settings(store: str) -> str:
    settings_class = CommonSettings if store == "every store" else find(store).settings_class
    return "".join(_setting(row) for row in reference(settings_class))


def _setting(row: SettingRow) -> str:
    default = "required" if row.default is None else f"default: {row.default or 'none'}"
    return _item(f"`{row.key}` ({row.kind}; {default})", config.explanation(row))


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands of *group* that are no groups, with how they are called."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        elif command is not None:
            yield f"{path} {name}", command


def _section(command: click.Command, path: str) -> str:
    usage = " ".join([path, *command.collect_usage_pieces(click.Context(command))])
    parts = [f"### {path}", f"```\n{usage}\n```", cleandoc(command.help or ""), _options(command)]
    return "".join(f"{part}\n\n" for part in parts if part)


def _options(command: click.Command) -> str:
    options = [one for one in command.params if isinstance(one, click.Option)]
    names = {one.name for one in options}
    own = [one for one in options if one.name not in STORE_OPTIONS | OUTPUT_OPTIONS]
    listed = "".join(map(_option, own))
    shared = [link for link, held in _SHARED.items() if held <= names]
    takes_others = f"And the options {' and '.join(shared)}." if shared else ""
    return "\n".join(filter(None, (listed, takes_others))).rstrip()


def _option(option: click.Option) -> str:
    default = f" Default: {option.default}." if option.show_default else ""
    written = " ".join(filter(None, (*option.opts, option.metavar)))
    return _item(f"`{written}`", f"{option.help}{default}")


def _item(term: str, text: str) -> str:
    return f"{_wrapped(f'* {term}: {text}')}\n"


def _wrapped(text: str) -> str:
    """Return *text* in lines of `_WIDTH` at most; no line ends within a code span."""
    unbroken = re.sub(r"`[^`]+`", lambda span: span[0].replace(" ", "\0"), text)
    lines = textwrap.fill(
        unbroken,
        _WIDTH,
        subsequent_indent="  " if text.startswith("* ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\0", " ")


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _main(files: Iterable[str]) -> None:
    for file in map(Path, files):
        file.write_text(refreshed(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
