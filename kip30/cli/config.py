"""``kip30 config``: the reference of all settings, and the check of the ones in use."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kip30.cli import _output, _parameters
from kip30.cli._effective_settings import effective_settings, settled_values, typed
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._output import Output
from kip30.cli._settings_diff import DIFFERENCE_TITLES, differences, read_settings
from kip30.cli._store_options import StoreChoice, loads_plugins, opens_store
from kip30.cli.backends import registered
from kip30.config import CommonSettings, Properties, SettingRow, build, reference
from kip30.errors import ConfigError
from kip30.runtime.backend_registry import NotLoadedError
from kip30.runtime.resolution import Checked, check, ddl

_REMEDY = "give `--load-plugins` to run that code"


@click.command("config")
@click.option(
    "--check",
    "checked",
    metavar="FILE",
    type=_parameters.FilePath(),
    help="Check FILE, without opening the store.",
)
@click.option(
    "--effective", "in_use", is_flag=True, help="Print the present settings, without secrets."
)
@click.option(
    "--diff",
    "compared",
    metavar="A B",
    nargs=2,
    type=_parameters.FilePath(),
    help="Print the settings in which the files A and B differ.",
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
    compared: tuple[Path, Path] | None,
    statements: bool,
    load_plugins: bool,
    output: Output,
) -> int:
    """Print the reference of all settings, or check those in use.

    The reference holds the settings of every installed store. With --effective a line is a
    setting, its value, and where it was written; with --check the name of the store that the
    file configures is printed. With --ddl it is the statements that create the tables
    that clients need; most stores need none.

    With --diff a line is a setting, its value in A and in B, and where each was written; "-" is
    none. Secrets, and values with references, are compared as they are written, and not shown. It
    exits with 0 if both files mean the same, else with 1.

    No code that the configuration names is run without --load-plugins; the output then names the
    unchecked parts.
    """
    if sum(map(bool, (checked, in_use, compared, statements))) > 1:
        raise click.UsageError("--check, --diff, --effective and --ddl are exclusive: give one")
    if compared:
        if choice != StoreChoice(settings={}):
            raise click.UsageError(
                "--diff reads two files: leave out --config, --backend and --set"
            )
        return _print_differences(*compared, load_plugins=load_plugins, output=output)
    if checked:
        choice = replace(choice, file=checked)
        _print_checked(check(choice.properties(), load_plugins=load_plugins), output=output)
    elif in_use:
        _print_effective(choice.properties(), load_plugins=load_plugins, output=output)
    elif statements:
        _print_statements(_statements(choice, load_plugins=load_plugins), output=output)
    else:
        _print_reference(choice.properties(), load_plugins=load_plugins, output=output)
    return Status.OK


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
    computed = build(CommonSettings, properties).computed
    settled = settled_values(properties, checked, computed)
    rows = list(effective_settings(properties, checked, settled))
    shown = ((row.key, value, origin) for row, value, origin in rows)
    records = (
        {"key": row.key, "value": typed(value, row.kind), "origin": origin}
        for row, value, origin in rows
    )
    output.table(("SETTING", "VALUE", "FROM"), shown, records)
    if not output.is_objects:
        _say_unchecked(checked)


def _print_differences(left: Path, right: Path, *, load_plugins: bool, output: Output) -> int:
    sides = [read_settings(file, load_plugins=load_plugins) for file in (left, right)]
    found = list(differences(*sides))
    output.table(
        DIFFERENCE_TITLES, (one.fields() for one in found), (one.record() for one in found)
    )
    if not output.is_objects:
        for file, side in zip((left, right), sides, strict=True):
            if side.unchecked:
                say(f"{file}: {side.unchecked}: {_REMEDY}")
    return Status.REFUSED if found else Status.OK


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
        "default": typed(row.default, row.kind),
        "required": row.default is None,
        "meaning": row.doc,
        "aliases": row.aliases,
        "secret": row.secret,
    }
