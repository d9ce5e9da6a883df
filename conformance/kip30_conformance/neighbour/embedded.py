"""A neighbour in the file of the embedded store, with sqlite3."""

import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver.records import Kind, new_nonce
from kip30_conformance.neighbour.base import Neighbour, Spot

_SECONDS = 10
_GREATEST = 2**63 - 1
_KINDS = {Kind.VALUE: 1, Kind.MEMBER: 2, Kind.SERVICE: 3}
_CHANGE = "INSERT INTO change (root, kind, scope, name) VALUES (?, ?, ?, ?)"
_PLANT = "INSERT OR REPLACE INTO service (root, scope, epoch, rev) VALUES (?, ?, ?, 1)"


class _Row(NamedTuple):
    """The columns of a record, of any type; a leader's *rev* is its candidate."""

    rev: Any
    nonce: Any
    data: Any


class _Table(NamedTuple):
    name: str
    where: str
    rev: str
    insert: str
    remove: str


_TABLES = {
    Kind.VALUE: _Table(
        "kv",
        "root = ? AND namespace = ? AND name = ?",
        "rev",
        "INSERT INTO kv (rev, nonce, data, root, namespace, name) VALUES (?, ?, ?, ?, ?, ?)",
        "DELETE FROM kv WHERE root = ? AND namespace = ? AND name = ?",
    ),
    Kind.MEMBER: _Table(
        "member",
        "root = ? AND scope = ? AND id = ?",
        "born",
        "INSERT INTO member (born, nonce, data, root, scope, id, rev, session)"
        " VALUES (?, ?, ?, ?, ?, ?, 1, 'foreign')",
        "DELETE FROM member WHERE root = ? AND scope = ? AND id = ?",
    ),
    Kind.SERVICE: _Table(
        "service",
        "root = ? AND scope = ?",
        "candidate",
        "INSERT INTO service (candidate, nonce, data, root, scope, epoch, rev, session)"
        " VALUES (?, ?, ?, ?, ?, 1, 1, 'foreign')",
        # The row stays: it keeps the epoch, which never goes back.
        "UPDATE service SET candidate = NULL, nonce = NULL, data = NULL, session = NULL"
        " WHERE root = ? AND scope = ?",
    ),
}


class EmbeddedNeighbour(Neighbour):
    """Writes rows, and notes the change: otherwise no client would look."""

    def __init__(self, file: Path, root: str) -> None:
        """Write to *file* the rows of *root*."""
        self._file = file
        self._name = root.encode()

    stray_names = (b"\xff\xfe".decode("latin-1"),)

    @override
    def read(self, spot: Spot) -> _Row | None:
        table = _TABLES[spot.kind]
        query = f"SELECT {table.rev}, nonce, data FROM {table.name} WHERE {table.where}"  # noqa: S608
        with self._writing(spot) as (database, place):
            found = database.execute(query, place).fetchone()
        return _Row(*found) if found else None

    @override
    def write(self, spot: Spot, stored: _Row) -> None:
        table = _TABLES[spot.kind]
        update = f"UPDATE {table.name} SET {table.rev} = ?, nonce = ?, data = ? WHERE {table.where}"  # noqa: S608
        with self._writing(spot) as (database, place):
            if not database.execute(update, (*stored, *place)).rowcount:
                database.execute(table.insert, (*stored, *place))

    @override
    def remove(self, spot: Spot) -> None:
        table = _TABLES[spot.kind]
        with self._writing(spot) as (database, place):
            database.execute(table.remove, place)

    @override
    def sound(self, spot: Spot, data: bytes) -> _Row:
        with self._writing(spot) as (database, _):
            rev = database.execute("SELECT max(rev) FROM change").fetchone()[0]
        return _Row(rev, new_nonce(), data)

    @override
    def foreign(self, data: bytes) -> _Row:
        return _Row(data, data, data)

    @override
    def unreadable_forms(self, sound: _Row) -> Mapping[str, _Row]:
        return {
            "a nonce of bytes": sound._replace(nonce=b"\x93"),
            "data of text": sound._replace(data="text"),
            "data of a number": sound._replace(data=7),
            "huge data of text": sound._replace(data="x" * self.huge_bytes),
            "text for what is none": sound._replace(rev="text"),
        }

    @override
    def damaged_forms(self, sound: _Row) -> Mapping[str, _Row]:
        return {
            "another nonce": sound._replace(nonce="\x1b[2J"),
            "other data": sound._replace(data=b"\x00\xff"),
            "no data": sound._replace(data=b""),
        }

    @override
    def plant(self, kind: Kind, scope: str) -> None:
        if kind is not Kind.SERVICE:
            super().plant(kind, scope)
        with self._writing(Spot(kind, scope)) as (database, place):
            database.execute(_PLANT, (*place, _GREATEST))

    @override
    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    @contextmanager
    def _writing(self, spot: Spot) -> Generator[tuple[sqlite3.Connection, tuple[Any, ...]]]:
        """Open the database for a transaction; yield the place of *spot* with it."""
        connection = sqlite3.connect(self._file, timeout=_SECONDS, isolation_level=None)
        with closing(connection) as database, database:
            database.execute("BEGIN IMMEDIATE")
            root, scope = self._root(database), spot.scope.encode()
            name = spot.name.encode("latin-1" if spot.is_raw else "utf-8")
            before = database.total_changes
            yield database, (root, scope) if spot.kind is Kind.SERVICE else (root, scope, name)
            if database.total_changes != before:
                database.execute(_CHANGE, (root, _KINDS[spot.kind], scope, name))

    def _root(self, database: sqlite3.Connection) -> int:
        find = "SELECT id FROM root WHERE name = ?"
        found: int = database.execute(find, (self._name,)).fetchone()[0]
        return found
