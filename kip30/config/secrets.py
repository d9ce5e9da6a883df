"""Passwords and tokens, which are read again from their files because they are rotated."""

import logging
import re
from collections.abc import Callable

from typing_extensions import override

from kip30.config.parsers import Parser, text
from kip30.errors import ConfigError

log: logging.Logger = logging.getLogger(__name__)

_KEY = re.compile(r"^[\w.-]+")


def key_alone(written: str) -> str:
    """Return the key that *written*, which is no setting, begins with; the rest may be a secret."""
    return "".join(_KEY.findall(written)[:1])


class Secret:
    """A password or token. Thread-safe; its repr does not show it.

    One that was taken from a file by ``${file:/path}`` is read from there each time that it is
    needed, so that a program outlives its rotation. One that was written out, or came from
    ``${env:NAME}`` alone, does not change.
    """

    def __init__(self, value: str, read: Callable[[], str] | None = None) -> None:
        """Start with *value*; *read* returns the one to use later, or raises `ConfigError`."""
        self._value = value
        self._read = read
        # The complaint that was last logged; two threads may log it twice.
        self._complaint = ""

    def current(self) -> str:
        """Return the secret to use now, for a new connection or after a refusal. Does not raise.

        While its file cannot be read, or holds nothing usable, the former secret stays in use, and
        a warning is logged.
        """
        if self._read is None:
            return self._value
        complaint = ""
        try:
            self._value = self._read()
        except ConfigError as error:
            complaint = str(error)
            if complaint != self._complaint:
                log.warning("the former secret stays in use: %s", complaint)
        self._complaint = complaint
        return self._value

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    @override
    def __hash__(self) -> int:
        return hash(Secret)  # the value changes

    @override
    def __repr__(self) -> str:
        return "<secret>"


secret: Parser[Secret] = Parser(lambda written: Secret(text.read(written)), text.kind)
"""Any text but an empty one, kept as a `Secret`."""
