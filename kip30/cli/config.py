"""``kip30 config``: the reference of all settings, and the check of the ones in use."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kip30.cli import output
from kip30.cli.backends import candidates
from kip30.cli.opening import StoreChoice, opens_store
from kip30.config import (
    CommonSettings,
    Properties,
    Row,
    build,
    effective,
    reference,
)
from kip30.locator import check, ddl


@click.command("config")
@click.option(
    "--check",
    "checked",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Say whether FILE is right, without opening the store.",
)
@click.option("--effective", "in_use", is_flag=True, help="Print what holds, without secrets.")
@click.option(
    "--ddl", "statements", is_flag=True, help="Print what prepares the store, for administrators."
)
@output.as_json
@opens_store
def command(
    choice: StoreChoice, *, checked: Path | None, in_use: bool, statements: bool, as_json: bool
) -> None:
    """Print the reference of all settings, or check those in use.

    The reference holds the settings of every installed store. With --effective a line is a
    setting, its value, and where it was written; with --check the name of the store that the
    file configures is printed. With --ddl it is the statements that make what the store has to
    have before its clients may use it; most stores need none.
    """
    if sum(map(bool, (checked, in_use, statements))) > 1:
        raise click.UsageError("--check, --effective and --ddl are questions: ask one at a time")
    if checked:
        _print_checked(check(replace(choice, file=checked).properties()).name, as_json=as_json)
    elif in_use:
        _print_effective(choice.properties(), as_json=as_json)
    elif statements:
        _print_statements(ddl(choice.properties()), as_json=as_json)
    else:
        _print_reference(choice.properties(), as_json=as_json)


def _print_checked(backend: str, *, as_json: bool) -> None:
    if as_json:
        output.json_line({"backend": backend})
    else:
        output.line(backend)


def _print_statements(statements: Sequence[str], *, as_json: bool) -> None:
    for statement in statements:
        if as_json:
            output.json_line({"statement": statement})
        else:
            output.line(f"{statement};")


def _print_effective(properties: Properties, *, as_json: bool) -> None:
    backend = check(properties)
    computed = build(CommonSettings, properties).computed
    unwritten = {key: value for key, value in computed.items() if key not in properties}
    rows = [
        (row.key, values[row.key], _origin(row, properties))
        for settings in (CommonSettings, backend.settings_class)
        for values in [
            {**effective(settings, properties), **unwritten, "plugin.backend": backend.name}
        ]
        for row in reference(settings)
    ]
    if as_json:
        for key, value, origin in rows:
            output.json_line({"key": key, "value": value, "origin": origin})
    else:
        output.table(("SETTING", "VALUE", "FROM"), rows)


def _origin(row: Row, properties: Properties) -> str:
    written = [properties[key].origin for key in (row.key, *row.aliases) if key in properties]
    return written[0] if written else "default"


def _print_reference(properties: Properties, *, as_json: bool) -> None:
    rows = list(_rows(properties))
    if as_json:
        for row in rows:
            output.json_line(_record(row))
    else:
        shown = [(row.key, row.kind, default(row), explanation(row)) for row in rows]
        output.table(("SETTING", "KIND", "DEFAULT", "MEANING"), shown)


def _rows(properties: Properties) -> Iterator[Row]:
    yield from reference(CommonSettings)
    for one in candidates(build(CommonSettings, properties).additional_paths):
        if one.backend is not None:
            yield from reference(one.backend.settings_class)


def default(row: Row) -> str:
    """Return what the reference says of the default."""
    return "required" if row.default is None else row.default or "-"


def explanation(row: Row) -> str:
    """Return what the reference says of the setting."""
    secret = "; secret, better as ${env:NAME} or ${file:/path}" if row.secret else ""
    aliases = f"; also {', '.join(row.aliases)}" if row.aliases else ""
    return f"{row.doc}{secret}{aliases}"


def _record(row: Row) -> dict[str, Any]:
    return {
        "key": row.key,
        "kind": row.kind,
        "default": row.default,
        "required": row.default is None,
        "meaning": row.doc,
        "aliases": row.aliases,
        "secret": row.secret,
    }
