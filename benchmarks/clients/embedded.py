"""The embedded store by sqlite3 alone: the statements that kip30 sends, and nothing besides.

`benchmarks.statements` proves that they are the same.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typing_extensions import override

from benchmarks.clients import library
from benchmarks.clients.interfaces import MEMBERS, Prepared, ScanReplay, Side
from benchmarks.clients.library import GROUP, KEY, MANY, VALUE
from benchmarks.processes import Child
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress
from kip30_backends.embedded import scanning
from kip30_backends.embedded.scanning import open_copy

Row = tuple[int, bytes, bytes]
"""The columns that identify a record."""

_READ = "SELECT rev, nonce, data FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_VERSION = "SELECT rev FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_CHANGE = "INSERT INTO change (root, kind, scope, name) VALUES (?, 1, ?, ?)"
_FORGET = "DELETE FROM change WHERE rev <= ?"
_WRITE = """
INSERT OR REPLACE INTO kv (rev, nonce, data, root, namespace, name) VALUES (?, ?, ?, ?, ?, ?)
"""
_DELETE = "DELETE FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_HOLDERS = """
SELECT DISTINCT session.id, boot, deadline FROM member JOIN session ON session.id = session
WHERE root = ? AND scope = ?
"""
_REV = "SELECT max(rev) FROM change"
_MEMBERS = "SELECT id, born, nonce, data FROM member WHERE root = ? AND scope = ?"
_PAGE_BEGINS = "SELECT CAST"

_ROOT = 1
_GROUP = (_ROOT, GROUP.encode())
_NONCE = "0123456789abcdef"
_DATA = VALUE.encode()
_LOG_PAGES = 1024
_CLEANING = 1024
_KEPT = 4096


class GroupMembers:
    """The process that all members of the group in a store belong to."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._process: Child | None = None

    def join(self, sessions: int) -> None:
        """Make them join in a number of *sessions*, unless they have."""
        if self._process is None:
            self._process = role("members", self._address, GROUP, MEMBERS, sessions, VALUE)
            self._process.line()

    def close(self) -> None:
        if self._process is not None:
            self._process.end()


class LibrarySide(library.LibrarySide):
    """kip30's side, with a group whose members belong to another process.

    They are in one session, or each in its own.
    """

    def __init__(self, address: StoreAddress) -> None:
        super().__init__(address)
        self._members = GroupMembers(address)

    @override
    def group(self, loops: int) -> Prepared:
        self._members.join(1)
        return self._group.membership, repeat((), loops)

    def own_sessions(self, loops: int) -> Prepared:
        self._members.join(MEMBERS)
        return self._group.membership, repeat((), loops)

    def one_session_by_one_select(self, loops: int) -> Prepared:
        return self.group(loops)

    @override
    def close(self) -> None:
        super().close()
        self._members.close()


def connect(address: StoreAddress, busy_seconds: float = 0) -> sqlite3.Connection:
    """Open a database as kip30 makes it, with kip30's settings.

    But the log is copied back by SQLite itself, when it has the size at which kip30 does so.
    """
    address.open().close()
    file = address.directory / "kip30.db"
    connection = sqlite3.connect(file, timeout=busy_seconds, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_PAGES * 4096}")
    return connection


class RawSide(Side):
    """Operations over one connection.

    A group is read by all statements that kip30 sends, or by the last of them alone.
    """

    def __init__(self, address: StoreAddress, busy_seconds: float = 0) -> None:
        self._connection = connect(address, busy_seconds)
        self._members = GroupMembers(address)
        self._execute = self._connection.execute
        self._fresh = count()
        namespace, name = KEY.encode().split(b"/")
        self._row = (_ROOT, namespace, name)
        self._put(self._row)

    def get(self, loops: int) -> Prepared:
        return self._get, repeat((self._row,), loops)

    def fetch(self, loops: int) -> Prepared:
        return self.get(loops)

    def fetch_many(self, loops: int) -> Prepared:
        rows = self._some()
        self._put_many(rows)
        return self._get_many, repeat((rows,), loops)

    def put(self, loops: int) -> Prepared:
        return self._put, [(self._fresh_row(),) for _ in range(loops)]

    def put_without_checkpoints(self, loops: int) -> Prepared:
        self._execute("PRAGMA wal_autocheckpoint = 0")
        return self.put(loops)

    def put_many(self, loops: int) -> Prepared:
        return self._put_many, [(self._some(),) for _ in range(loops)]

    def update(self, loops: int) -> Prepared:
        return self._put, repeat((self._row,), loops)

    def compare_and_set(self, loops: int) -> Prepared:
        return self.update(loops)

    def delete(self, loops: int) -> Prepared:
        rows = [self._fresh_row() for _ in range(loops)]
        for row in rows:
            self._put(row)
        return self._delete, [(row,) for row in rows]

    def group(self, loops: int) -> Prepared:
        self._members.join(1)
        return self.read_group, repeat((), loops)

    def own_sessions(self, loops: int) -> Prepared:
        self._members.join(MEMBERS)
        return self.read_group, repeat((), loops)

    def one_session_by_one_select(self, loops: int) -> Prepared:
        self._members.join(1)
        return self._select_members, repeat((), loops)

    def read_group(self) -> list[object]:
        self._execute(_HOLDERS, _GROUP).fetchall()
        self._execute("BEGIN")
        self._execute(_REV).fetchone()
        members = self._select_members()
        self._connection.rollback()
        return members

    @override
    def close(self) -> None:
        self._connection.close()
        self._members.close()

    def _select_members(self) -> list[object]:
        return self._execute(_MEMBERS, _GROUP).fetchall()

    def _get(self, row: Row) -> object:
        return self._execute(_READ, row).fetchone()

    def _get_many(self, rows: list[Row]) -> None:
        self._execute("BEGIN")
        for row in rows:
            self._get(row)
        self._connection.rollback()

    def _put(self, row: Row) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._write(row)
        self._execute("COMMIT")

    def _put_many(self, rows: list[Row]) -> None:
        self._execute("BEGIN IMMEDIATE")
        for row in rows:
            self._write(row)
        self._execute("COMMIT")

    def _delete(self, row: Row) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._change(row)
        self._execute(_DELETE, row)
        self._execute("COMMIT")

    def _write(self, row: Row) -> None:
        rev = self._change(row)
        self._execute(_WRITE, (rev, _NONCE, _DATA, *row))

    def _change(self, row: Row) -> int:
        self._execute(_VERSION, row).fetchone()
        rev = self._execute(_CHANGE, row).lastrowid or 0
        if not rev % _CLEANING:
            self._execute(_FORGET, (rev - _KEPT,))
        return rev

    def _fresh_row(self) -> Row:
        return _ROOT, b"bench", b"%08d" % next(self._fresh)

    def _some(self) -> list[Row]:
        return [self._fresh_row() for _ in range(MANY)]


class RawScan(ScanReplay):
    """The same statements, on a connection of its own to the same copy, which stays open."""

    def __init__(self, _: StoreAddress) -> None:
        self._statements: list[tuple[str, Any]] = []
        self._connection = sqlite3.connect(":memory:")

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        def opened(copy: Path) -> Any:
            self._connection = open_copy(copy)
            return _NotingConnection(open_copy(copy), self._statements)

        with patch.object(scanning, "open_copy", opened):
            yield

    @override
    def read(self) -> int:
        pages = (self._connection.execute(*one).fetchall() for one in self._statements)
        return sum(map(len, pages))

    @override
    def close(self) -> None:
        self._connection.close()


class _NotingConnection:
    """A connection that notes the statements that read pages."""

    def __init__(self, connection: sqlite3.Connection, noted: list[tuple[str, Any]]) -> None:
        self._connection = connection
        self._noted = noted

    def execute(self, sql: str, values: Any) -> sqlite3.Cursor:
        if sql.strip().startswith(_PAGE_BEGINS):
            self._noted.append((sql, values))
        return self._connection.execute(sql, values)

    def close(self) -> None:
        self._connection.close()
