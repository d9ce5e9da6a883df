"""The confirmation before a command that ends a term or deletes keys."""

import sys
from typing import TextIO

import click

from kip30.cli import _output


def confirm(question: str, *, otherwise: str) -> None:
    """Ask *question* on a terminal.

    Raises:
        click.UsageError: There is no terminal to ask on; *otherwise* says what is needed then.
        click.Abort: The answer is no.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise click.UsageError(f"without a terminal to ask on, {otherwise}")
    click.confirm(_output.escaped(question), abort=True, err=True)


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether *stream* is a terminal; None is stdin that was closed when Python started."""
    return stream is not None and stream.isatty()
