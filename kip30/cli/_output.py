"""Data on stdout, by one rule for all commands.

In a pipe or a file a record is a line of UTF-8 with tabs between its fields: no titles, nothing
cut. On a terminal records are a table with titles, or, where the terminal is too narrow for that, a
paragraph for each record. With ``--json`` a record is an object on a line of its own; `SCHEMA` in
`kip30.cli._schema` lists the fields.
"""

import json
import shutil
import sys
import textwrap
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

Field = str | bytes | int

_NARROWEST_COLUMN = 16
_GAP = "  "
_json_wanted: ContextVar[bool] = ContextVar("_json_wanted", default=False)


def as_json(command: F) -> F:
    """Give *command* the option ``--json``."""
    option = click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,  # so that a mistake in another option is reported as JSON, too
        callback=_note_json,
        help="Print JSON, one object a line.",
    )
    return option(command)


def want_json(*, wanted: bool) -> None:
    """Note whether errors are to be JSON."""
    _json_wanted.set(wanted)


def is_json_wanted() -> bool:
    """Return whether errors are to be JSON."""
    return _json_wanted.get()


def raw(data: bytes) -> None:
    """Print *data* and nothing else, but on a terminal end the line."""
    is_open_line = sys.stdout.isatty() and not data.endswith(b"\n")
    click.echo(data, nl=is_open_line)


def line(*fields: Field, widths: Sequence[int] = ()) -> None:
    """Print *fields* as one record of a stream, which has no titles and does not know its end.

    Args:
        fields: What to print; characters that would break the line are escaped.
        widths: On a terminal, how wide each field is at least.
    """
    shown = [escaped(field) for field in fields]
    if not sys.stdout.isatty():
        click.echo("\t".join(shown).encode())
        return
    wide = [*widths, *[0] * len(shown)]
    padded = (text.ljust(width) for text, width in zip(shown, wide, strict=False))
    click.echo(_GAP.join(padded).rstrip().encode())


def table(titles: Sequence[str], rows: Sequence[Sequence[Field]]) -> None:
    """Print all records of a listing; the first field is what names a record."""
    if not sys.stdout.isatty():
        for row in rows:
            line(*row)
        return
    if not rows:
        return
    shown = [[escaped(field) for field in row] for row in rows]
    columns = shutil.get_terminal_size().columns
    if _least_width(titles, shown) <= columns:
        _rich_table(titles, shown, columns)
    else:
        _paragraphs(titles, shown, columns)


def json_line(record: dict[str, Any]) -> None:
    """Print *record* as one line of JSON; see `text_or_base64` for bytes."""
    click.echo(json.dumps(record))


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return *data* as a field *name* if it is UTF-8, else in base64 as ``<name>_base64``."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def escaped(field: Field) -> str:
    """Return *field* as text in which nothing breaks a line or controls a terminal."""
    text = field.decode(errors="backslashreplace") if isinstance(field, bytes) else str(field)
    return text if text.isprintable() else "".join(map(_printable, text))


def _note_json(_context: click.Context, _option: click.Parameter, wanted: bool) -> bool:  # noqa: FBT001  click's
    if wanted:
        want_json(wanted=True)
    return wanted


def _least_width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how wide a table must be so that names stay whole and the rest can be read."""
    named, *others = (max(map(len, column)) for column in zip(titles, *rows, strict=True))
    return named + sum(len(_GAP) + min(width, _NARROWEST_COLUMN) for width in others)


def _rich_table(titles: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> None:
    from rich.console import Console  # noqa: PLC0415  slow to import
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(box=None, header_style="bold", pad_edge=False)
    for index, title in enumerate(titles):
        shown.add_column(title, no_wrap=not index, overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    # Rich by itself takes $COLUMNS as it is, and prints nothing if that is 0.
    Console(width=columns).print(shown)


def _paragraphs(titles: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> None:
    for name, *others in rows:
        click.echo(name)
        for title, text in zip(titles[1:], others, strict=True):
            if text:
                click.echo(_wrapped(f"{title}: {text}", columns))


def _wrapped(text: str, columns: int) -> str:
    return textwrap.fill(
        text,
        columns,
        initial_indent=_GAP,
        subsequent_indent=2 * _GAP,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
