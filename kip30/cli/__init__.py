"""The ``kip30`` command line: it parses, prints and says how it went; it decides nothing."""

from kip30.cli.program import main

__all__ = ["main"]
