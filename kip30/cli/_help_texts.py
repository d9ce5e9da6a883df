"""Help texts where Python was started with ``-OO``, which drops the docstrings they come from."""

import ast
import inspect
import sys
from textwrap import dedent

import click

_DROPS_DOCSTRINGS = 2
_NO_HELP = "No help: Python was started with -OO, and the sources of kip30 are not installed."


def with_help(command: click.Command) -> click.Command:
    """Return *command*, with the help text from its source if it has none."""
    if command.help is None and sys.flags.optimize >= _DROPS_DOCSTRINGS:
        command.help = _from_source(command.callback)
    return command


def _from_source(callback: object) -> str:
    if not callable(callback):
        return _NO_HELP
    try:
        (function,) = ast.parse(dedent(inspect.getsource(inspect.unwrap(callback)))).body
    except (OSError, TypeError):  # there is no source, or it is no Python function
        return _NO_HELP
    text = ast.get_docstring(function) if isinstance(function, ast.FunctionDef) else None
    return text or _NO_HELP
