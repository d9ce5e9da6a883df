"""The ``kip30`` command line: it parses, prints and returns an exit code; it decides nothing."""

from kip30.cli.program import main

__all__ = ["main"]
