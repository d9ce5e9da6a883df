"""Markdown for generated pages: tables and lists whose lines have `WIDTH` characters at most."""

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, or several, which share the first column, where one would be too wide.

    Only a cell that is too wide by itself makes a line longer than `WIDTH`.
    """
    columns = [[_cell(text) for text in column] for column in zip(head, *rows, strict=True)]
    first, *others = columns
    parts: list[list[Sequence[str]]] = [[first]]
    for column in others:
        if len(parts[-1]) > 1 and _width([*parts[-1], column]) > WIDTH:
            parts.append([first])
        parts[-1].append(column)
    return "\n".join(map(_drawn, parts))


def item(text: str) -> str:
    """Return *text* as an item of a list; code spans are not divided between lines."""
    unbroken = re.sub(r"`[^`]+`", lambda span: span[0].replace(" ", "\0"), text)
    lines = textwrap.fill(
        unbroken,
        WIDTH,
        initial_indent="* ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{lines}\n".replace("\0", " ")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _width(columns: Sequence[Sequence[str]]) -> int:
    return max(len(_line(cells)) for cells in zip(*columns, strict=True))


def _drawn(columns: Sequence[Sequence[str]]) -> str:
    head, *rows = zip(*columns, strict=True)
    return "".join(f"{_line(cells)}\n" for cells in (head, ["---"] * len(head), *rows))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
