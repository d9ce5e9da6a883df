"""The keys of a journal, the version of each, and what could not be read as a record.

It is a file of SQLite, so the memory in use does not grow with the number of keys.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kip30.driver.scanning import Rejected

_TABLES = """
CREATE TABLE IF NOT EXISTS known (key BLOB PRIMARY KEY, stamp TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS applied (segment INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rejected (key BLOB PRIMARY KEY, record BLOB, reason TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS rejected_records ON rejected (record);
ATTACH ? AS scan;
"""
_SEEN = "CREATE TABLE scan.seen (key BLOB PRIMARY KEY) WITHOUT ROWID"
_PAGE = "CREATE TEMP TABLE page (number INTEGER, key BLOB, stamp TEXT)"
_CHANGED = """
SELECT page.number FROM page LEFT JOIN known ON known.key = page.key
WHERE known.stamp IS NOT page.stamp ORDER BY page.number
"""
_FIRST_REJECTED = "SELECT key, reason FROM rejected ORDER BY key LIMIT ?"
_HIDDEN = "INSERT OR IGNORE INTO scan.seen VALUES (?)"
_FROM = "INSERT OR IGNORE INTO scan.seen SELECT key FROM known WHERE key >= ?"
_BETWEEN = f"{_FROM} AND key < ?"
_UNSEEN = """
SELECT key FROM known WHERE key > ? AND NOT EXISTS
(SELECT 1 FROM scan.seen WHERE scan.seen.key = known.key) ORDER BY key LIMIT ?
"""
_COUNT_UNSEEN = """
SELECT count(*) FROM known
WHERE NOT EXISTS (SELECT 1 FROM scan.seen WHERE scan.seen.key = known.key)
"""
_AT_ONCE = 10_000
_NONE = -1
_NO_STAMP = ""
"""The stamp of no record."""


class Known(NamedTuple):
    """The state of one key.

    Attributes:
        key: The key.
        stamp: A text that differs between any two states of it (`stamp`); None: it is deleted.
    """

    key: bytes
    stamp: str | None


def stamp(major: int, minor: int, modified: int | None) -> str:
    """Return a text that distinguishes a record from each former one of its key.

    Some raw records have no version, but a time of their last change.
    """
    return f"{major}.{minor}.{modified}"


class KnownKeys:
    """The keys of one journal. One thread at a time uses an object.

    Attributes:
        segment: The last segment of the journal whose changes are in here; -1: none.
    """

    def __init__(self, file: Path) -> None:
        """Open *file*, or make it."""
        self._scan = file.with_name(f"{file.name}-scan")
        self._scan.unlink(missing_ok=True)
        self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        file.chmod(0o600)
        execute = self._database.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA temp_store = MEMORY")
        *tables, attach = _TABLES.strip().rstrip(";").split(";")
        for table in tables:
            execute(table)
        execute(attach, (str(self._scan),))
        execute("PRAGMA scan.journal_mode = OFF")
        execute("PRAGMA scan.synchronous = OFF")
        execute(_PAGE)
        row = execute("SELECT segment FROM applied").fetchone()
        self.segment: int = _NONE if row is None else int(row[0])

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()
        self._scan.unlink(missing_ok=True)

    def __len__(self) -> int:
        """Count the keys."""
        return int(self._database.execute("SELECT count(*) FROM known").fetchone()[0])

    def fill(self, states: Iterable[Known]) -> None:
        """Replace everything by *states*; afterwards no segment counts as applied."""
        with self._database:
            self._database.execute("BEGIN")
            self._database.execute("DELETE FROM known")
            self._put(states)
            self._note(_NONE)

    def apply(self, segment: int, states: Sequence[Known]) -> None:
        """Apply the changes of *segment*, which follows the last one, in their order."""
        with self._database:
            self._database.execute("BEGIN")
            last = dict(states)
            gone = [(key,) for key, found in last.items() if found is None]
            self._database.executemany("DELETE FROM known WHERE key = ?", gone)
            self._put(Known(*one) for one in last.items() if one[1] is not None)
            self._note(segment)

    def forget_stamps(self) -> None:
        """Let the next scan find every key changed: stamps of two stores may be equal by chance."""
        self._database.execute("UPDATE known SET stamp = ?", (_NO_STAMP,))

    def begin_scan(self) -> None:
        """Forget which keys were seen, and which records were rejected."""
        self._database.execute("DELETE FROM rejected")
        with suppress(sqlite3.OperationalError):
            self._database.execute("DROP TABLE scan.seen")
        self._database.execute(_SEEN)

    def changed(self, keys: Sequence[bytes], stamps: Sequence[str]) -> list[int]:
        """Return the numbers of the records of a page that are new or changed; note all as seen."""
        rows = zip(range(len(keys)), keys, stamps, strict=True)
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT INTO page VALUES (?, ?, ?)", rows)
            found = [number for (number,) in self._database.execute(_CHANGED)]
            self._database.execute("INSERT OR IGNORE INTO scan.seen SELECT key FROM page")
            self._database.execute("DELETE FROM page")
        return found

    def reject(self, found: Iterable[Rejected]) -> None:
        """Note unreadable records. Each counts until it can be read again or a scan begins."""
        rows = [(one.key, one.record, one.reason) for one in found]
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT OR REPLACE INTO rejected VALUES (?, ?, ?)", rows)

    def note_readable(self, key: bytes) -> None:
        """Note that the record at *key* can be read again, or is gone."""
        self._database.execute("DELETE FROM rejected WHERE record = ?", (key,))

    def note_gone(self, place: bytes) -> None:
        """Note that nothing is at *place*, a path or key in the store that no record can have."""
        self._database.execute("DELETE FROM rejected WHERE key = ?", (place,))

    def hide(self, rejected: Iterable[Rejected]) -> None:
        """Note as seen what *rejected*, of the present scan, hides: it is not known to be gone."""
        with self._database:
            self._database.execute("BEGIN")
            for one in rejected:
                if one.record is not None:
                    self._database.execute(_HIDDEN, (one.record,))
                if one.prefix is not None:
                    self._hide_below(one.prefix)

    def count_rejected(self) -> int:
        """Count the records that could not be read."""
        return int(self._database.execute("SELECT count(*) FROM rejected").fetchone()[0])

    def first_rejected(self, most: int) -> list[Rejected]:
        """Return up to *most* records that could not be read, with their keys and reasons."""
        found = self._database.execute(_FIRST_REJECTED, (most,))
        return [Rejected(key, reason) for key, reason in found]

    def count_unseen(self) -> int:
        """Count the keys that no page since `begin_scan` had."""
        return int(self._database.execute(_COUNT_UNSEEN).fetchone()[0])

    def unseen(self) -> Iterator[bytes]:
        """Yield the keys that no page since `begin_scan` had. `apply` may be called meanwhile."""
        last = b""
        while found := self._database.execute(_UNSEEN, (last, _AT_ONCE)).fetchall():
            for (key,) in found:
                yield key
            last = found[-1][0]

    def _hide_below(self, prefix: bytes) -> None:
        # By both ends: the file is large, and there may be as many prefixes as keys.
        end = _end_of(prefix)
        if end:
            self._database.execute(_BETWEEN, (prefix, end))
        else:
            self._database.execute(_FROM, (prefix,))

    def _put(self, states: Iterable[Known]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO known VALUES (?, ?)", states)

    def _note(self, segment: int) -> None:
        self._database.execute("DELETE FROM applied")
        self._database.execute("INSERT INTO applied VALUES (?)", (segment,))
        self.segment = segment


def _end_of(prefix: bytes) -> bytes:
    """Return what is after all keys that begin with *prefix*, and before others; empty: nothing."""
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes([rest[-1] + 1]) if rest else b""
