"""Each operation with sqlite3 alone: the statements that kip30 sends, and nothing besides.

`benchmarks.statements` proves that they are the same.
"""

import sqlite3
from itertools import count, repeat
from pathlib import Path

from benchmarks.library import KEY, MANY, VALUE, Prepared
from benchmarks.store_address import EMBEDDED, StoreAddress

Place = tuple[int, bytes, bytes]

_READ = "SELECT rev, nonce, data FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_VERSION = "SELECT rev FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_CHANGE = "INSERT INTO change (root, kind, scope, name) VALUES (?, 1, ?, ?)"
_FORGET = "DELETE FROM change WHERE rev <= ?"
_WRITE = """
INSERT OR REPLACE INTO kv (rev, nonce, data, root, namespace, name) VALUES (?, ?, ?, ?, ?, ?)
"""
_DELETE = "DELETE FROM kv WHERE root = ? AND namespace = ? AND name = ?"

_ROOT = 1
_NONCE = "0123456789abcdef"
_DATA = VALUE.encode()
_LOG_PAGES = 1024
_CLEANING = 1024
_KEPT = 4096


def connect(directory: Path, busy_seconds: float = 0) -> sqlite3.Connection:
    """Open a database as kip30 makes it, with kip30's settings.

    But the log is copied back by SQLite itself, when it has the size at which kip30 does so.
    """
    StoreAddress(EMBEDDED, str(directory)).open().close()
    connection = sqlite3.connect(directory / "kip30.db", timeout=busy_seconds, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_PAGES * 4096}")
    return connection


class Raw:
    """Operations on a database in *directory*, over one connection."""

    def __init__(self, directory: Path, busy_seconds: float = 0) -> None:
        self._connection = connect(directory, busy_seconds)
        self._execute = self._connection.execute
        self._fresh = count()
        namespace, name = KEY.encode().split(b"/")
        self._place = (_ROOT, namespace, name)
        self._put(self._place)

    def get(self, loops: int) -> Prepared:
        return self._get, repeat((self._place,), loops)

    def fetch(self, loops: int) -> Prepared:
        return self.get(loops)

    def fetch_many(self, loops: int) -> Prepared:
        places = self._some()
        self._put_many(places)
        return self._get_many, repeat((places,), loops)

    def put(self, loops: int) -> Prepared:
        return self._put, [(self._fresh_place(),) for _ in range(loops)]

    def put_without_checkpoints(self, loops: int) -> Prepared:
        self._execute("PRAGMA wal_autocheckpoint = 0")
        return self.put(loops)

    def put_many(self, loops: int) -> Prepared:
        return self._put_many, [(self._some(),) for _ in range(loops)]

    def update(self, loops: int) -> Prepared:
        return self._put, repeat((self._place,), loops)

    def compare_and_set(self, loops: int) -> Prepared:
        return self.update(loops)

    def delete(self, loops: int) -> Prepared:
        places = [self._fresh_place() for _ in range(loops)]
        for place in places:
            self._put(place)
        return self._delete, [(place,) for place in places]

    def close(self) -> None:
        self._connection.close()

    def _get(self, place: Place) -> object:
        return self._execute(_READ, place).fetchone()

    def _get_many(self, places: list[Place]) -> None:
        self._execute("BEGIN")
        for place in places:
            self._get(place)
        self._connection.rollback()

    def _put(self, place: Place) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._write(place)
        self._execute("COMMIT")

    def _put_many(self, places: list[Place]) -> None:
        self._execute("BEGIN IMMEDIATE")
        for place in places:
            self._write(place)
        self._execute("COMMIT")

    def _delete(self, place: Place) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._change(place)
        self._execute(_DELETE, place)
        self._execute("COMMIT")

    def _write(self, place: Place) -> None:
        rev = self._change(place)
        self._execute(_WRITE, (rev, _NONCE, _DATA, *place))

    def _change(self, place: Place) -> int:
        self._execute(_VERSION, place).fetchone()
        rev = self._execute(_CHANGE, place).lastrowid or 0
        if not rev % _CLEANING:
            self._execute(_FORGET, (rev - _KEPT,))
        return rev

    def _fresh_place(self) -> Place:
        return _ROOT, b"bench", b"%08d" % next(self._fresh)

    def _some(self) -> list[Place]:
        return [self._fresh_place() for _ in range(MANY)]
