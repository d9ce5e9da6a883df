"""Encoding of a group's records: a line of JSON, then bytes as they are.

The line can be read by people, and by programs that are not kip30's; the bytes behind it are the
application's own, which JSON would make a third longer. ``format`` is the number of the layout: a
kip30 that adds a field which older ones may ignore keeps the number, any other change raises it.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from kip30.errors import CodecError

_MOST = 2**63


def write(kind: str, number: int, fields: Mapping[str, object], blobs: bytes) -> bytes:
    """Return the record of a *kind* in the format *number*."""
    head = {"record": kind, "format": number, **fields}
    line = json.dumps(head, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return line.encode() + b"\n" + blobs


def read(kind: str, number: int, data: bytes) -> "tuple[Fields, Blobs]":
    """Return the values that `write` was called with.

    Raises:
        CodecError: *data* is no record of that kind, of another format, or damaged.
    """
    line, newline, rest = data.partition(b"\n")
    fields = Fields(kind, _parsed(kind, line if newline else b""))
    if fields.text("record") != kind:
        raise CodecError(f"expected the record of a {kind}, not of a {fields.text('record')!r:.40}")
    found = fields.count("format")
    if found != number:
        raise CodecError(
            f"the record of a {kind} has format {found}; this kip30 reads format {number}:"
            " upgrade the older of the two"
        )
    return fields, Blobs(kind, rest)


def damaged(kind: str, why: str) -> NoReturn:
    """Raise the error of an unreadable record.

    Raises:
        CodecError: Always.
    """
    raise CodecError(f"the record of a {kind} is damaged, or another program's: {why}")


class Fields:
    """The fields of a JSON object, each checked when it is read; all methods raise `CodecError`."""

    def __init__(self, kind: str, found: Mapping[str, object]) -> None:
        """Read *found*; *kind* names the record in errors."""
        self._kind = kind
        self._found = found

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._found.get(name, default)
        if isinstance(value, str) and (value.isascii() or _is_encodable(value)):
            return value
        return self._refuse(name, "a text")

    def count(self, name: str, *, least: int = 0, default: int | None = None) -> int:
        """Return a whole number from *least* on."""
        value = self._found.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < _MOST:
            return value
        return self._refuse(name, f"a whole number from {least} on")

    def seconds(self, name: str) -> float:
        """Return a duration above 0."""
        value = self._found.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value) if value < _MOST else math.inf
            if 0 < seconds < math.inf:
                return seconds
        return self._refuse(name, "a number of seconds above 0")

    def flag(self, name: str) -> bool:
        """Return a truth value; false if it is not there."""
        value = self._found.get(name, False)
        return value if isinstance(value, bool) else self._refuse(name, "true or false")

    def rows(self, name: str) -> "list[Fields]":
        """Return a list of objects; empty if it is not there."""
        value = self._found.get(name, [])
        if not isinstance(value, list):
            self._refuse(name, "a list")
        return [Fields(self._kind, self._row(name, row)) for row in cast("list[object]", value)]

    def _row(self, name: str, row: object) -> Mapping[str, object]:
        if not isinstance(row, dict):
            self._refuse(name, "a list of objects")
        return cast("dict[str, object]", row)

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        damaged(self._kind, f"{name!r} is not {wanted}")


class Blobs:
    """The bytes behind the line, cut off piece by piece."""

    def __init__(self, kind: str, data: bytes) -> None:
        """Begin with the first byte of *data*."""
        self._kind = kind
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next *size* bytes.

        Raises:
            CodecError: There are fewer.
        """
        end = self._at + size
        if end > len(self._data):
            damaged(self._kind, "it is too short")
        piece, self._at = self._data[self._at : end], end
        return piece

    def end(self) -> None:
        """Check that all bytes were taken.

        Raises:
            CodecError: Some are left.
        """
        if self._at != len(self._data):
            damaged(self._kind, "it is too long")


def _is_encodable(text: str) -> bool:
    """Return whether *text* has no lone surrogate, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parsed(kind: str, line: bytes) -> Mapping[str, object]:
    try:
        found: Any = json.loads(line.decode(), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        damaged(kind, "it does not begin with a line of JSON")
    if not isinstance(found, dict):
        damaged(kind, "it does not begin with a JSON object")
    return cast("dict[str, object]", found)
