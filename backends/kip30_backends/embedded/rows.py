"""Rows as records. Another program may write others: those are set apart, and hide no record.

SQLite checks no types: a column of blobs may hold text or numbers, and text that is not UTF-8.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kip30.driver.records import Entry, Version
from kip30.errors import StoreError

UNREADABLE = (sqlite3.OperationalError, UnicodeDecodeError, AttributeError, TypeError)
"""What reading a row raises, or decoding its names, that kip30 has not written."""

_ADVICE = "another program wrote it: delete or replace it with that"


class Records(NamedTuple):
    """The records among some rows by name, and why the others are none."""

    entries: dict[str, Entry]
    unreadable: dict[str, str]


class _Undecodable(bytes):
    """Text that is not UTF-8."""


def records(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any], *, name: str = ""
) -> Records:
    """Return what *query* finds: rows of a name, a version, a nonce and data.

    A row that is found by *name* has that name in any case, also if its own name cannot be read.
    """
    try:
        return Records(dict(map(_record, connection.execute(query, parameters))), {})
    except UNREADABLE:
        return _judged(connection, query, parameters, name)


def entry(version: int, nonce: str, data: bytes) -> Entry:
    """Return the record with these columns.

    Raises:
        TypeError: They are no record's.
    """
    # By type, not `isinstance`: this is done for each row, and SQLite gives no subclasses.
    if type(data) is bytes and type(nonce) is str and type(version) is int:
        return Entry(Version(version), nonce, data)
    raise TypeError(_fault(version, nonce, data))


def foreign(what: str, reason: object) -> StoreError:
    """Return the error for *what*, which a caller asked for by name and which is no record."""
    return StoreError(f"{what} cannot be read: {reason}: {_ADVICE}")


@contextmanager
def any_text(connection: sqlite3.Connection) -> Generator[None]:
    """Have *connection* read also text that is not UTF-8."""
    before = connection.text_factory
    connection.text_factory = _text
    try:
        yield
    finally:
        connection.text_factory = before


def _record(row: tuple[bytes, int, str, bytes]) -> tuple[str, Entry]:
    return row[0].decode(), entry(*row[1:])


def _judged(
    connection: sqlite3.Connection, query: str, parameters: Sequence[Any], called: str
) -> Records:
    found = Records({}, {})
    with any_text(connection):
        for row in connection.execute(query, parameters):
            try:
                name, record = _record(row)
            except (UnicodeDecodeError, AttributeError, TypeError) as error:
                found.unreadable[called or _shown(row[0])] = _reason(row[0], error)
            else:
                found.entries[name] = record
    return found


def _reason(name: object, error: Exception) -> str:
    if type(name) is not bytes:
        return f"its name is {_kind(name)}"
    return str(error) if isinstance(error, TypeError) else "its name is not UTF-8"


def _fault(version: object, nonce: object, data: object) -> str:
    if type(version) is not int:
        return f"its version is {_kind(version)}"
    if type(nonce) is not str:
        return f"its nonce is {_kind(nonce)}"
    return f"its data is {_kind(data)}"


def _kind(value: object) -> str:
    """Return what SQLite calls the type of *value*."""
    kinds: dict[type[object], str] = {
        bytes: "a blob",
        str: "text",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(value), "NULL" if value is None else "text that is not UTF-8")


def _shown(name: object) -> str:
    """Return *name* so that it can be printed, and is no name of a record beside it."""
    if type(name) is bytes:
        return name.decode(errors="backslashreplace")
    return repr(bytes(name) if isinstance(name, bytes) else name)


def _text(raw: bytes) -> object:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _Undecodable(raw)
