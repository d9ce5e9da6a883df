"""Layout of tables: of all records of a listing at once. Their texts are escaped already."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

GAP = "  "
"""What separates the columns of a table."""

_NARROWEST_COLUMN = 16


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, has_titles: bool = True
) -> None:
    """Print *rows* below *titles*; the first field is what names a record.

    On a terminal a table fits: long fields are folded. Where it is too narrow even for that, each
    record is a paragraph, whose fields always have their titles. Elsewhere nothing is folded.
    """
    if not sys.stdout.isatty():
        _aligned([titles, *rows] if has_titles else rows)
        return
    columns = shutil.get_terminal_size().columns
    if _least_width(titles, rows) <= columns:
        _rich_table(titles, rows, columns, has_titles=has_titles)
    else:
        _paragraphs(titles, rows, columns)


def _aligned(rows: Sequence[Sequence[str]]) -> None:
    from rich.cells import cell_len  # noqa: PLC0415  slow to import

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (
            text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)
        )
        click.echo(GAP.join(padded).rstrip(" ").encode())


def _least_width(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how wide a table must be so that names stay whole and the rest can be read."""
    named, *others = (max(map(len, column)) for column in zip(titles, *rows, strict=True))
    return named + sum(len(GAP) + min(width, _NARROWEST_COLUMN) for width in others)


def _rich_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], columns: int, *, has_titles: bool
) -> None:
    from rich.console import Console  # noqa: PLC0415  slow to import
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(box=None, header_style="bold", pad_edge=False, show_header=has_titles)
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
        initial_indent=GAP,
        subsequent_indent=2 * GAP,
        break_long_words=False,
        break_on_hyphens=False,
    )
