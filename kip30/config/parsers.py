"""From an operator's text to a typed value.

A parser's error says what is wrong and shows a correct value. It never repeats the text, which may
be a secret.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from typing_extensions import override

from kip30.config.home import without_tilde
from kip30.config.suggestions import did_you_mean

T = TypeVar("T")

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_DURATION = re.compile(r"([0-9]{1,9})\s*(ms|s|m|min|h)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_DAY_MS = 86_400_000
_MAX_PORT = 65_535
_EMPTY = "empty; give a value or leave the key out"


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """Parser of one kind of setting.

    Attributes:
        read: Returns the value of a text without surrounding blanks, or raises `ValueError`
            saying what is wrong and what would be correct, without repeating the text.
        kind: The kind of value, for the reference.
    """

    read: Callable[[str], T]
    kind: str


class Address(NamedTuple):
    """Host and port at which a server listens."""

    host: str
    port: int

    @override
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _text(written: str) -> str:
    if not written:
        raise ValueError(_EMPTY)
    return _encodable(written)


def _encodable(written: str) -> str:
    """Return *written*, unless it holds a lone surrogate: half of a pair, or a byte of no text."""
    try:
        written.encode()
    except UnicodeEncodeError:
        raise ValueError("it cannot be written as UTF-8; give text") from None
    return written


def _boolean(written: str) -> bool:
    if written.lower() not in {"true", "false"}:
        raise ValueError("neither true nor false")
    return written.lower() == "true"


def _path(written: str) -> Path:
    if "\0" in written:
        raise ValueError("a path cannot contain a NUL character; remove it")
    if not written:
        raise ValueError(_EMPTY)
    try:
        os.fsencode(written)  # which takes bytes that are no text: file systems have such names
    except UnicodeEncodeError:
        raise ValueError("it cannot be the name of a file; give text") from None
    try:
        return without_tilde(Path(written))
    except RuntimeError as error:
        raise ValueError("no home directory for '~'; write the path in full") from error


def _paths(written: str) -> tuple[Path, ...]:
    parts = _parts(written.replace(os.pathsep, ",")) if written else []
    return tuple(_path(part) for part in parts)


text: Parser[str] = Parser(_text, "text")
"""Any text but an empty one."""

boolean: Parser[bool] = Parser(_boolean, "true or false")
"""A truth value."""

path: Parser[Path] = Parser(_path, "path")
"""A file or folder; ``~`` is the user's home. `build` places a relative one (`Value.folder`)."""

paths: Parser[tuple[Path, ...]] = Parser(_paths, "paths, comma separated")
"""Files or folders, separated by commas or the system's own separator; may be empty."""


PATH_KINDS = (path.kind, paths.kind)


def integer(*, minimum: int = 0, maximum: int = 2**31 - 1) -> Parser[int]:
    """Return a parser of whole numbers."""

    def read(written: str) -> int:
        example = min(max(minimum, 10), maximum)
        if not _WHOLE.fullmatch(written):
            raise ValueError(f"not a whole number; write one like {example}")
        return _within(int(written), minimum, maximum)

    return Parser(read, f"number, at least {minimum}")


def milliseconds(*, minimum: int = 1, maximum: int = _DAY_MS) -> Parser[float]:
    """Return a parser of durations, written in milliseconds and returned in seconds."""

    def read(written: str) -> float:
        if not _WHOLE.fullmatch(written):
            example = _as_milliseconds(written) or min(max(minimum, 10_000), maximum)
            raise ValueError(f"not a whole number of milliseconds; write {example}")
        return _within(int(written), minimum, maximum) / 1000

    return Parser(read, f"milliseconds, at least {minimum}")


def choice(*words: str) -> Parser[str]:
    """Return a parser that takes one of *words*, in any case."""

    def read(written: str) -> str:
        if written.lower() not in words:
            hint = did_you_mean(written.lower(), words)
            raise ValueError(f"not one of {', '.join(words)}{hint}")
        return written.lower()

    return Parser(read, " or ".join(words))


def addresses(default_port: int) -> Parser[tuple[Address, ...]]:
    """Return a parser of ``host:port,host:port``; an IPv6 host stands in brackets."""

    def read(written: str) -> tuple[Address, ...]:
        return tuple(_address(part, default_port) for part in _parts(_encodable(written)))

    return Parser(read, "addresses host:port, comma separated")


def _within(number: int, minimum: int, maximum: int) -> int:
    if number < minimum:
        raise ValueError(f"too small; write at least {minimum}")
    if number > maximum:
        raise ValueError(f"too large; write at most {maximum}")
    return number


def _as_milliseconds(written: str) -> int:
    """Return what an operator meant who wrote a unit, or 0."""
    found = _DURATION.fullmatch(written.lower())
    return int(found[1]) * _UNITS_MS[found[2]] if found else 0


def _parts(written: str) -> list[str]:
    parts = [part.strip() for part in written.split(",")]
    if not all(parts):
        raise ValueError("an empty entry; separate the entries by single commas")
    return parts


def _address(written: str, default_port: int) -> Address:
    found = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^\[\]:/\s]+))(?::([0-9]{1,5}))?", written)
    if not found:
        raise ValueError(f"not an address; write host:{default_port} or [::1]:{default_port}")
    port = int(found[3] or default_port)
    if not 0 < port <= _MAX_PORT:
        raise ValueError(f"not a port; write one from 1 to {_MAX_PORT}")
    return Address(found[1] or found[2], port)
