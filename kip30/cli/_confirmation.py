"""The confirmation before a command that ends a term or deletes keys."""

import sys

import click

from kip30.cli import _output


def confirm(question: str, *, otherwise: str) -> None:
    """Ask *question* on a terminal.

    Raises:
        click.UsageError: There is no terminal to ask on; *otherwise* says what is needed then.
        click.Abort: The answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"without a terminal to ask on, {otherwise}")
    click.confirm(_output.escaped(question), abort=True, err=True)
