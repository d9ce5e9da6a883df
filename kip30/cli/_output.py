"""Data on stdout, by one rule for all commands.

In a pipe or a file a record is a line of UTF-8 with tabs between its fields: no titles, nothing
cut. On a terminal records are a table with titles, or, where the terminal is too narrow for that, a
paragraph for each record. ``--output`` chooses a form wherever the output goes: with titles, or as
objects of JSON or YAML, whose fields `SCHEMA` in `kip30.cli._schema` lists. A command hands over
both, fields and objects, and does not know the forms.
"""

import io
import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import wraps
from typing import Any, TypeVar

import click

from kip30.cli._standard_streams import discard
from kip30.cli._tables import GAP, print_table
from kip30.cli._yaml import yaml_document

R = TypeVar("R")

Field = str | bytes | int
Row = Sequence[Field]
Record = Mapping[str, Any]

OUTPUT_OPTIONS = frozenset({"form", "as_json", "no_headers"})
"""The names of the parameters that `prints_records` adds."""

_CHOSEN = "kip30.form"
_ASKS_FOR_OBJECTS = re.compile(
    r"(^|\0)(--json|(-[a-zA-Z]*o\0?|--output[=\0])(json|yaml))(\0|$)",
)
_json_wanted: ContextVar[bool] = ContextVar("_json_wanted", default=False)


class Form(Enum):
    """A form of records; the values are those of ``--output``."""

    TABLE = "table"
    TSV = "tsv"
    JSON = "json"
    YAML = "yaml"


_OBJECTS = (Form.JSON, Form.YAML)


@dataclass(frozen=True, slots=True)
class Output:
    """Prints the records of a command.

    Attributes:
        form: The form that was chosen; None for lines in a pipe, a table on a terminal.
        has_titles: True if titles are printed where the form has any.
    """

    form: Form | None = None
    has_titles: bool = True

    @property
    def is_chosen(self) -> bool:
        """True if a form was chosen, so that raw bytes are not wanted."""
        return self.form is not None

    @property
    def is_objects(self) -> bool:
        """True if records are objects: then stderr is for errors alone."""
        return self.form in _OBJECTS

    @property
    def is_aligned(self) -> bool:
        """True if fields are padded to columns, and not separated by tabs."""
        return sys.stdout.isatty() if self.form is None else self.form is Form.TABLE

    def table(
        self, titles: Sequence[str], rows: Iterable[Row], records: Iterable[Record] = ()
    ) -> None:
        """Print all records of a listing. Only one of *rows* and *records* is consumed.

        Args:
            titles: Those of the fields of a row.
            rows: The records as fields; the first one is what names a record.
            records: The records as objects; those may divide the data otherwise than rows do.
        """
        with _outliving_reader():
            if self.is_objects:
                for record in records:
                    self.record(record)
            elif self.is_aligned:
                shown = [[escaped(field) for field in row] for row in rows]
                if shown or self.is_chosen:
                    print_table(titles, shown, has_titles=self.has_titles)
            else:
                self.lines(titles).print(rows)

    def lines(
        self, titles: Sequence[str], widths: Sequence[int] = (), *, outlives_reader: bool = False
    ) -> "Lines":
        """Return what prints records one by one, as a stream does that does not know its end.

        Args:
            titles: Those of the fields of a row; they are printed now, and only in a form that was
                chosen.
            widths: Where fields are aligned, how wide each one is at least.
            outlives_reader: Whether the command goes on without its output once the reader of
                stdout has gone, and ends with the exit code of what it has found or done.
        """
        return Lines(self, titles, widths, outlives_reader=outlives_reader)

    def line(self, titles: Sequence[str], row: Row, record: Record) -> None:
        """Print the only record of a command, in the form of a stream."""
        self.lines(titles, outlives_reader=True).print([row], lambda: record)

    def end_listing(self) -> None:
        """Print the empty line that separates listings which follow each other."""
        if not self.is_objects:
            click.echo()

    def record(self, record: Record) -> None:
        """Print *record* as an object; see `text_or_base64` for bytes."""
        if self.form is Form.YAML:
            click.echo(yaml_document(record))
        else:
            json_line(record)


@contextmanager
def _outliving_reader() -> Generator[None]:
    """Print a part of the output, or nothing more if its reader has gone, which raises nothing."""
    try:
        yield
    except BrokenPipeError:
        with suppress(io.UnsupportedOperation):
            discard(sys.stdout.fileno())


class Lines:
    """Prints the records of a stream; see `Output.lines`."""

    def __init__(
        self,
        output: Output,
        titles: Sequence[str],
        widths: Sequence[int],
        *,
        outlives_reader: bool,
    ) -> None:
        """Print the titles, if there are any."""
        self._output = output
        self._writing = _outliving_reader if outlives_reader else nullcontext
        has_titles = output.is_chosen and output.has_titles and not output.is_objects
        self._titles = titles
        self._widths = widths
        if has_titles:
            least = [*widths, *[0] * (len(titles) - len(widths))]
            self._widths = [
                max(len(title), width) for title, width in zip(titles, least, strict=True)
            ]
            with self._writing():
                self._print(titles)

    def print(self, rows: Iterable[Row], record: Callable[[], Record] | None = None) -> None:
        """Print what *rows* and *record* both are; only one of them is consumed.

        Args:
            rows: Lines of fields; characters that would break a line are escaped.
            record: Returns the object; None if an object has it already.
        """
        with self._writing():
            if not self._output.is_objects:
                for row in rows:
                    self._print(row)
            elif record is not None:
                self._output.record(record())

    def _print(self, row: Row) -> None:
        shown = [escaped(field) for field in row]
        if self._output.is_aligned:
            wide = [*self._widths, *[0] * len(shown)]
            padded = (text.ljust(width) for text, width in zip(shown, wide, strict=False))
            click.echo(GAP.join(padded).rstrip().encode())
        else:
            # In tsv each line has as many fields as there are titles.
            lacking = len(self._titles) - len(shown) if self._output.is_chosen else 0
            click.echo("\t".join([*shown, *[""] * lacking]).encode())


def prints_records(command: Callable[..., R]) -> Callable[..., R]:
    """Give *command* the options that choose a form, as its argument *output*, an `Output`."""

    # Eager, so that a mistake in another option is reported as JSON, too.
    @click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice([one.value for one in Form]),
        is_eager=True,
        callback=_note_form,
        help="Form of the records, with titles where it has any; else a table on a terminal, and"
        " lines with tabs and no titles elsewhere.",
    )
    @click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=_note_form,
        help="The same as -o json: an object a line.",
    )
    @click.option("--no-headers", is_flag=True, help="Print no titles.")
    @wraps(command)
    def with_output(
        *args: Any, form: str | None, as_json: bool, no_headers: bool, **rest: Any
    ) -> R:
        chosen = Form.JSON if as_json else form and Form(form)
        return command(*args, output=Output(chosen or None, not no_headers), **rest)

    return with_output


def want_json(*, wanted: bool) -> None:
    """Note whether errors are to be JSON."""
    _json_wanted.set(wanted)


def is_json_wanted() -> bool:
    """Return whether errors are to be JSON."""
    return _json_wanted.get()


def ask_for_objects(words: Sequence[str]) -> bool:
    """Return whether *words* of a call that could not be parsed ask for JSON or YAML."""
    return bool(_ASKS_FOR_OBJECTS.search("\0".join(words)))


def raw(data: bytes) -> None:
    """Print *data* and nothing else, but on a terminal end the line."""
    is_open_line = sys.stdout.isatty() and not data.endswith(b"\n")
    click.echo(data, nl=is_open_line)


def json_line(record: Record) -> None:
    """Print *record* as one line of JSON; see `text_or_base64` for bytes."""
    click.echo(json.dumps(record))


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return *data* as a field *name* if it is UTF-8, else in base64 as ``<name>_base64``."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data or b"").decode()}


def moment(seconds: float) -> str:
    """Return the time *seconds* after 1970, in the zone of this machine."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # another program wrote it
        return str(seconds)


def escaped(field: Field) -> str:
    """Return *field* as text in which nothing breaks a line or controls a terminal."""
    text = field.decode(errors="backslashreplace") if isinstance(field, bytes) else str(field)
    return text if text.isprintable() else "".join(map(_printable, text))


def _note_form(context: click.Context, _option: click.Parameter, given: Any) -> Any:
    """Note the form that *given* is: a value of ``--output``, or that ``--json`` was given.

    Raises:
        click.UsageError: Both were given, and contradict each other.
    """
    if given:
        form = Form.JSON if given is True else Form(given)
        if form in _OBJECTS:
            want_json(wanted=True)
        if context.meta.setdefault(_CHOSEN, form) is not form and not context.resilient_parsing:
            raise click.UsageError("--json and --output contradict each other: give one of them")
    return given


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
