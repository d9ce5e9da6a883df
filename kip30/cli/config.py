"""``kip30 config``: the reference of all settings, and the check of the ones in use."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kip30.cli import _output
from kip30.cli._failures import say
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, loads_plugins, opens_store
from kip30.cli.backends import registered
from kip30.config import (
    CommonSettings,
    Properties,
    SettingRow,
    boolean,
    build,
    effective,
    reference,
)
from kip30.errors import ConfigError
from kip30.runtime.backend_registry import NotLoadedError
from kip30.runtime.resolution import Checked, check, ddl

_STORE = "plugin.backend"
_NUMBERS = ("milliseconds", "number,")
_REMEDY = "give `--load-plugins` to run that code"


@click.command("config")
@click.option(
    "--check",
    "checked",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Check FILE, without opening the store.",
)
@click.option(
    "--effective", "in_use", is_flag=True, help="Print the present settings, without secrets."
)
@click.option(
    "--ddl",
    "statements",
    is_flag=True,
    help="Print the statements that prepare the store, for administrators.",
)
@loads_plugins
@_output.prints_records
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    *,
    checked: Path | None,
    in_use: bool,
    statements: bool,
    load_plugins: bool,
    output: Output,
) -> None:
    """Print the reference of all settings, or check those in use.

    The reference holds the settings of every installed store. With --effective a line is a
    setting, its value, and where it was written; with --check the name of the store that the
    file configures is printed. With --ddl it is the statements that create the tables
    that clients need; most stores need none.

    No code that the configuration names is run without --load-plugins; the output then names the
    unchecked parts.
    """
    if sum(map(bool, (checked, in_use, statements))) > 1:
        raise click.UsageError("--check, --effective and --ddl exclude each other: give one")
    if checked:
        choice = replace(choice, file=checked)
        _print_checked(check(choice.properties(), load_plugins=load_plugins), output=output)
    elif in_use:
        _print_effective(choice.properties(), load_plugins=load_plugins, output=output)
    elif statements:
        _print_statements(_statements(choice, load_plugins=load_plugins), output=output)
    else:
        _print_reference(choice.properties(), load_plugins=load_plugins, output=output)


def _print_checked(checked: Checked, *, output: Output) -> None:
    name = checked.backend.name if checked.backend else None
    record = {"backend": name, "unchecked": checked.unchecked or None}
    output.line(("STORE",), (name or "-",), record)
    if not output.is_objects:
        _say_unchecked(checked)


def _say_unchecked(checked: Checked) -> None:
    if checked.unchecked:
        say(f"{checked.unchecked}: {_REMEDY}")


def _statements(choice: StoreChoice, *, load_plugins: bool) -> Sequence[str]:
    try:
        return ddl(choice.properties(), load_plugins=load_plugins)
    except NotLoadedError as error:
        raise ConfigError(f"{error}: {_REMEDY}") from error


def _print_statements(statements: Sequence[str], *, output: Output) -> None:
    if output.is_chosen:
        rows = ((statement,) for statement in statements)
        output.table(("STATEMENT",), rows, ({"statement": one} for one in statements))
    else:
        for statement in statements:
            _output.raw(f"{statement};\n".encode())


def _print_effective(properties: Properties, *, load_plugins: bool, output: Output) -> None:
    checked = check(properties, load_plugins=load_plugins)
    rows = list(_effective_rows(properties, checked))
    shown = ((row.key, value, origin) for row, value, origin in rows)
    records = (
        {"key": row.key, "value": _typed(value, row.kind), "origin": origin}
        for row, value, origin in rows
    )
    output.table(("SETTING", "VALUE", "FROM"), shown, records)
    if not output.is_objects:
        _say_unchecked(checked)


def _effective_rows(
    properties: Properties, checked: Checked
) -> Iterator[tuple[SettingRow, str, str]]:
    """Yield each setting that is known, its value, and where that comes from."""
    computed = build(CommonSettings, properties).computed
    settled = {key: value for key, value in computed.items() if key not in properties}
    classes: list[type[Any]] = [CommonSettings]
    origins: dict[str, str] = {}
    if checked.backend is not None:
        settled[_STORE] = checked.backend.name
        origins[_STORE] = f"default: {checked.reason}" if checked.is_default else checked.reason
        classes.append(checked.backend.settings_class)
    for one in classes:
        values = {**effective(one, properties), **settled}
        for row in reference(one):
            yield row, values[row.key], origins.get(row.key) or _origin(row, properties)


def _typed(value: str | None, kind: str) -> str | int | bool | None:
    """Return *value* as JSON has it: a number or a truth value where the setting is one."""
    if not value:
        return None
    if kind.startswith(_NUMBERS) and value.isdecimal():
        return int(value)
    return value == "true" if kind == boolean.kind and value in {"true", "false"} else value


def _origin(row: SettingRow, properties: Properties) -> str:
    for key in (row.key, *row.aliases):
        if key in properties:
            origin = properties[key].origin
            return origin if key == row.key else f"{key} ({origin})"
    return "default"


def _print_reference(properties: Properties, *, load_plugins: bool, output: Output) -> None:
    rows = list(_rows(properties, load_plugins=load_plugins))
    shown = ((row.key, row.kind, default(row), explanation(row)) for row in rows)
    output.table(("SETTING", "KIND", "DEFAULT", "MEANING"), shown, map(_record, rows))


def _rows(properties: Properties, *, load_plugins: bool) -> Iterator[SettingRow]:
    yield from reference(CommonSettings)
    paths = build(CommonSettings, properties).additional_paths
    for one in registered(paths, load_plugins=load_plugins):
        if one.backend is not None:
            yield from reference(one.backend.settings_class)


def default(row: SettingRow) -> str:
    """Return what the reference says of the default."""
    return "required" if row.default is None else row.default or "-"


def explanation(row: SettingRow) -> str:
    """Return what the reference says of the setting."""
    secret = "; secret, better as ${env:NAME} or ${file:/path}" if row.secret else ""
    aliases = f"; also {', '.join(row.aliases)}" if row.aliases else ""
    return f"{row.doc}{secret}{aliases}"


def _record(row: SettingRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "kind": row.kind,
        "default": _typed(row.default, row.kind),
        "required": row.default is None,
        "meaning": row.doc,
        "aliases": row.aliases,
        "secret": row.secret,
    }
