"""Data on stdout: bytes as they are, lines a script can split, or JSON, one object a line."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def as_json(command: F) -> F:
    """Give *command* the option ``--json``."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
    return option(command)


def raw(data: bytes) -> None:
    """Print *data* and nothing else, but on a terminal end the line."""
    is_open_line = sys.stdout.isatty() and not data.endswith(b"\n")
    click.echo(data, nl=is_open_line)


def line(*fields: str | bytes | int) -> None:
    """Print *fields* as one line of UTF-8, whatever they hold, with tabs in between."""
    click.echo("\t".join(map(_shown, fields)).encode())


def json_line(record: dict[str, Any]) -> None:
    """Print *record* as one line of JSON; see `text_or_base64` for bytes."""
    click.echo(json.dumps(record))


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return *data* as a field *name* if it is UTF-8, else in base64 as ``<name>_base64``."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows for people to read."""
    if sys.stdout.isatty():
        _rich_table(titles, rows)
        return
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _rich_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415  slow to import
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(*titles, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        shown.add_row(*map(Text, row))
    Console().print(shown)


def _shown(field: str | bytes | int) -> str:
    text = field.decode(errors="backslashreplace") if isinstance(field, bytes) else str(field)
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
