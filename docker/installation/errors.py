"""Errors of an installation, each shown in one line."""


class InstallationError(Exception):
    """The server is not there. What other runs need is untouched: it can be tried again."""


class UnknownServerError(Exception):
    """There is no such recipe."""
